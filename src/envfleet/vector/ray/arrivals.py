"""Waiting for actors that find a place and make their environments: not for ever."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

from envfleet.vector.runtime import AwakeClock
from envfleet.vector.failures import Failure
from envfleet.vector.lost import LostWorker
from envfleet.vector.ray.actors import Actors, Ref
from envfleet.vector.spaces import EnvFace

Answer: TypeAlias = "list[EnvFace] | Failure"

_LOOK_AROUND = 0.5
_TELL_AFTER = 15.0
"""Seconds without a place after which the user is told."""


@final
class Arrivals:
    """Actors that were started.

    Args:
        actors: All of the fleet.
        sizes: The number of environments of each.
        start_timeout: Seconds that an actor may take to find a place, and then for each environment; None: no limit.

    Attributes:
        check_wanted: Raises if whoever waits is not to wait any longer.
    """

    def __init__(self, actors: Actors, sizes: Sequence[int], start_timeout: float | None) -> None:
        self._actors, self._sizes, self._start_timeout = actors, sizes, start_timeout
        self.check_wanted: Callable[[], None] = lambda: None
        self._told = False

    def answers(self, workers: Sequence[int]) -> list[Answer]:
        """What the environments of these actors show, or why there are none, in order.

        A LostWorker tells of the first that ended, or that was ended because it took too long.
        """
        placing = {self._actors.call(worker, "place"): worker for worker in workers}
        making = {self._actors.call(worker, "make"): worker for worker in workers}
        self._collect(placing, self._actors.places, self._look_for_places)
        answers: dict[int, bytes] = {}
        self._collect(making, answers, self._look_at_makers)
        return [pickle.loads(answers[worker]) for worker in workers]

    def _collect(
        self, calls: dict[Ref, int], answers: dict[int, Any], look: Callable[[list[int], float], None]
    ) -> None:
        clock, rest = AwakeClock(_LOOK_AROUND), list(calls)
        while rest:
            ready, rest = self._actors.wait(rest, 1, _LOOK_AROUND)
            came = [calls[ref] for ref in ready]
            answers.update(zip(came, self._actors.answers(ready, came), strict=True))
            self.check_wanted()
            look([calls[ref] for ref in rest], clock.now())

    def _look_for_places(self, homeless: list[int], seconds: float) -> None:
        if not homeless:
            return
        limit = self._start_timeout
        if limit is not None and seconds > limit:
            advice = self._actors.shortage() or "Ray may still be starting machines or installing packages."
            cause = f"had found no place after {limit:g} s (start_timeout). {advice}"
            raise LostWorker(homeless[0], cause.rstrip("."), is_stuck=True)
        if seconds > _TELL_AFTER and not self._told and (shortage := self._actors.shortage()):
            self._told = True
            until = "for ever" if limit is None else f"up to {limit:g} s"
            warnings.warn(
                f"{len(homeless)} of {len(self._actors)} actors wait for a place. {shortage} They are waited for "
                f"{until} (start_timeout).",
                RuntimeWarning,
                stacklevel=2,
            )

    def _look_at_makers(self, busy: list[int], seconds: float) -> None:
        for worker in busy:
            if self._start_timeout is not None and seconds > self._start_timeout * self._sizes[worker]:
                self._actors.end_one(worker)
                cause = f"was ended: its environments were still being made after {seconds:.0f} s (start_timeout)"
                raise LostWorker(worker, cause, is_stuck=True)
