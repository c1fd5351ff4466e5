"""Who may have been restarted, by the rules that docs/failures.md gives, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


class Excuses:
    """What was done to a fleet and has not been told of yet.

    A worker that is struck from outside excuses one environment, the one that was at work or being rebuilt; one whose
    environment ends its own process excuses that environment. The others are rebuilt, and may be restarted only if they
    cannot be: they have not begun an episode since they were made or told of a restart, or a call has touched them.

    Args:
        shares: The environments of each worker.
    """

    def __init__(self, shares: Sequence[Sequence[int]]) -> None:
        self._shares = shares
        self._culprits: Counter[int] = Counter()
        self._strikes: Counter[int] = Counter()
        self._losses: Counter[int] = Counter()
        self._not_begun = {env for share in shares for env in share}
        self._touched: set[int] = set()

    # -- what is done ---------------------------------------------------------------------------------

    def struck(self, worker: int) -> None:
        """A worker is killed or stopped from outside."""
        self._strikes[worker] += 1
        self._lose(worker)

    def will_die(self, env: int, worker: int) -> None:
        """An environment is told to take its process along."""
        self._culprits[env] += 1
        self._lose(worker)

    def will_fail(self, env: int) -> None:
        """An environment is told to fail, which costs no process."""
        self._culprits[env] += 1

    def touched(self, env: int) -> None:
        """A method of an environment is called."""
        self._touched.add(env)

    def _lose(self, worker: int) -> None:
        self._losses.update(self._shares[worker])

    # -- what is seen ---------------------------------------------------------------------------------

    def accepts(self, env: int, worker: int) -> bool:
        """Whether an environment may tell that it was restarted."""
        if self.was_lost(env) and (env in self._not_begun or env in self._touched):
            return True  # first: the strike may be another's excuse
        for counts, key in ((self._culprits, env), (self._strikes, worker)):
            if counts[key] > 0:
                counts[key] -= 1
                return True
        return False

    def showed(self, env: int, *, tells: bool, began: bool) -> None:
        """An environment has shown a row: one that tells of a restart, or perhaps begins an episode."""
        if tells:
            self._not_begun.add(env)
            self._touched.discard(env)
        elif began:
            self._not_begun.discard(env)

    def was_lost(self, env: int) -> bool:
        """Whether its worker may have been lost, not long ago."""
        return self._losses[env] > 0

    def lost_before_it_told(self, env: int) -> bool:
        """Whether an environment may have been lost once more than it told; counts that it was."""
        self._losses[env] -= 1
        return self._losses[env] >= 0

    def end_phase(self) -> None:
        """Nothing is under way any more: whoever was at work when its worker was lost has told."""
        self._strikes.clear()

    def clear(self) -> None:
        """All workers were there, and everything was told."""
        self.end_phase()
        self._culprits.clear()
        self._losses.clear()
