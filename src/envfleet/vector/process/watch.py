"""Waiting for workers, and noticing those that died or are stuck, from what the block shows of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.vector import lost
from envfleet.vector.cores import usable_cores
from envfleet.vector.runtime import NEVER, AwakeClock, Deadline
from envfleet.vector.lost import LostWorker
from envfleet.vector.process import protocol
from envfleet.vector.process.copies import ForkedCopies
from envfleet.vector.process.workers import Crew
from envfleet.vector.process.patience import ASLEEP, CallerPatience
from envfleet.vector.recovery import Care
from envfleet.vector.share import Activity

_Sign: TypeAlias = tuple[int, tuple[int, int], int]

_ACTIVITIES = frozenset(Activity)
_GARBAGE = (
    "garbage was written into the shared block, where the caller and this worker speak, by one of its environments or "
    "of another worker's"
)


@final
class Watch:
    """Looks at workers that have something to do.

    Args:
        progress: uint64 (num_envs, ...); each worker counts in the first cell of its first row, see ``_core.Progress``,
            and says in the second what it is doing, see ``Activity``.
        bounds: The environments ``(first, last + 1)`` of each worker.
        care: How long they may take.

    Attributes:
        check_wanted: Raises if whoever waits is not to wait any longer.
    """

    def __init__(
        self,
        crew: Crew,
        mailroom: _core.Mailroom,
        progress: npt.NDArray[np.uint64],
        bounds: list[tuple[int, int]],
        care: Care,
    ) -> None:
        self._crew, self._mailroom, self._progress, self._bounds = crew, mailroom, progress, bounds
        self._care = care
        self._copies = ForkedCopies(progress[:, 2])
        self._patience = CallerPatience(len(crew), usable_cores())
        self.check_wanted: Callable[[], None] = lambda: None
        self._last_look = 0.0
        self._clock = AwakeClock(protocol.WATCH_INTERVAL)
        self._seen: dict[int, tuple[_Sign, float]] = {}
        self._warned: dict[int, _Sign] = {}

    def wait(
        self,
        condition: Callable[[float, float, float], bool],
        busy: Callable[[], list[int]],
        deadline: Deadline = NEVER,
    ) -> None:
        """Waits until ``condition(seconds, pause, yield)`` holds, looking at the ``busy()`` workers again and again.

        Raises LostWorker as ``look`` does, and TimeoutError after ``deadline``.
        """
        start = time.monotonic()
        patience = self._patience.now()
        while not condition(deadline.slice(protocol.WATCH_INTERVAL), patience.pause, patience.yield_):
            self._go_on(busy, deadline)
            patience = ASLEEP
        self._patience.learn(time.monotonic() - start)

    def deliver(self, busy: Callable[[], list[int]], deadline: Deadline = NEVER) -> None:
        """Waits until everything that workers were told is on its way, as ``wait`` does."""
        while not self._crew.all_sent and not self._crew.deliver(
            range(len(self._crew)), deadline.slice(protocol.WATCH_INTERVAL)
        ):
            self._go_on(busy, deadline)

    def await_message(self, worker: int, deadline: Deadline = NEVER) -> None:
        """Waits until there is one for ``Crew.pop_message``, as ``wait`` does.

        Nobody else is looked at: what others have to say they cannot get rid of meanwhile.
        """
        while not self._crew.has_heard(worker, deadline.slice(protocol.WATCH_INTERVAL)):
            self.check_wanted()
            self._look_at(worker, self._clock.now())
            deadline.check([worker])

    def _go_on(self, busy: Callable[[], list[int]], deadline: Deadline) -> None:
        self.check_wanted()
        workers = busy()
        self.look(workers)
        deadline.check(workers)

    def look_now_and_then(self, busy: Callable[[], list[int]]) -> None:
        """One that is stuck must be noticed even while others keep the caller from waiting."""
        now = time.monotonic()
        if now - self._last_look > protocol.WATCH_INTERVAL:
            self._last_look = now
            self.look(busy())

    def look(self, workers: list[int]) -> None:
        """Raises LostWorker for the first that is dead, or that has not moved on for ``step_timeout`` seconds."""
        self.warn_of_copies()
        for worker in workers:
            if not self._crew.is_alive(worker):
                cause = self._crew.lost(worker).cause
                garbled = f" after {_GARBAGE}" if self._mailroom.is_garbled(worker) else ""
                raise LostWorker(worker, f"{cause}{self._doing(worker)}{garbled}")
        now = self._clock.now()
        for worker in workers:
            self._look_at(worker, now)

    def warn_of_copies(self) -> None:
        """Names environments that have forked a copy of their worker which came back, if there are any new ones."""
        self._copies.warn()

    def _look_at(self, worker: int, now: float) -> None:
        if self._mailroom.is_garbled(worker):
            self._crew.end_one(worker)
            raise LostWorker(worker, f"was ended: {_GARBAGE}")
        # What it was given counts too: one that has just got something to do may not have begun.
        # And what travels: one that has much to say, or is told much, is not stuck.
        sign = self._cell(worker), self._mailroom.received(worker), self._crew.traffic(worker)
        seen, since = self._seen.get(worker, (None, now))
        if sign != seen:
            self._seen[worker] = sign, now
            return
        limit, name = self._limit(worker)
        if limit is not None and now - since > limit:
            self._crew.end_one(worker)
            del self._seen[worker]
            what = (
                f"environment {self.env_of(worker)} had not finished" if self.is_at_work(worker) else "it did nothing"
            )
            raise LostWorker(worker, f"was ended: {what} after {limit:g} s ({name})", is_stuck=True)
        if limit is None and now - since > lost.STUCK_WARNING_AFTER and self._warned.get(worker) != sign:
            self._warned[worker] = sign
            warnings.warn(
                f"Environment {self.env_of(worker)} (worker {worker}, pid {self._crew.processes[worker].pid}) has not "
                f"finished for {now - since:.0f} s. Pass {name}=seconds to have stuck environments ended.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _limit(self, worker: int) -> tuple[float | None, str]:
        """The seconds that what a worker is at may take, and the name of the argument that says so."""
        if self.activity_of(worker) == Activity.MAKING:
            return self._care.start_timeout, "start_timeout"
        return self._care.step_timeout, "step_timeout"

    def activity_of(self, worker: int) -> Activity:
        """What a worker is doing, or was when it died."""
        found = int(self._progress[self._bounds[worker][0], 1])
        return Activity(found) if found in _ACTIVITIES else Activity.ANYTHING  # it may have written anything there

    def env_of(self, worker: int) -> int:
        """The environment a worker is at, or was when it died; its last one if it was at none."""
        first, last = self._bounds[worker]
        return min(first + self._row(worker), last - 1)

    def is_at_work(self, worker: int) -> bool:
        """Whether a worker is at some environment, or was when it died."""
        first, last = self._bounds[worker]
        return self._row(worker) < last - first

    def _row(self, worker: int) -> int:
        return self._cell(worker) % 2**32

    def _cell(self, worker: int) -> int:
        return int(self._progress[self._bounds[worker][0], 0])

    def _doing(self, worker: int) -> str:
        return f" while environment {self.env_of(worker)} was at work" if self.is_at_work(worker) else ""
