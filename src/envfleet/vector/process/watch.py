"""Waits for workers that work (``Watch``) or start (``Startup``), and finds those that die or hang.

``Startup`` also starts a worker in place of one that was lost, from its process to its first turn.
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.vector import failures
from envfleet.vector.block import Activity
from envfleet.vector.failures import FailurePolicy
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.process.worker import ASLEEP, CallerPatience, ForkedCopies, Making, WorkerSetup
from envfleet.vector.process.workers import Workers
from envfleet.vector.recovery import Answer, LostWorker, ShardTask, all_made
from envfleet.vector.runtime import NEVER, AwakeClock, Deadline, signals_blocked, usable_cores
from envfleet.vector.spaces import EnvFace

WATCH_INTERVAL = 0.05
"""Seconds after which a waiting caller checks that its workers are alive."""


_Sign: TypeAlias = tuple[int, tuple[int, int], int]

_ACTIVITIES = frozenset(Activity)
_GARBAGE = (
    "garbage was written into the shared block, where the caller and this worker speak, by one of its environments or "
    "of another worker's"
)


@final
class Watch:
    """Waits for workers that have something to do, and finds those that are dead or stuck.

    Args:
        workers: The workers.
        mailroom: Where they get their work.
        progress: uint64 (num_envs, ...). Each worker counts in the first cell of its first row, see ``_core.Progress``,
            and says in the second cell what it is doing, see ``Activity``.
        bounds: The environments ``(first, last + 1)`` of each worker.
        policy: How long they may take.
        check_wanted: Raises if whoever waits is not to wait any longer.
    """

    def __init__(
        self,
        workers: Workers,
        mailroom: _core.Mailroom,
        progress: npt.NDArray[np.uint64],
        bounds: list[tuple[int, int]],
        policy: FailurePolicy,
        check_wanted: Callable[[], None],
    ) -> None:
        self._workers, self._mailroom, self._progress, self._bounds = workers, mailroom, progress, bounds
        self._policy = policy
        self._copies = ForkedCopies(progress[:, 2])
        self._patience = CallerPatience(len(workers), usable_cores())
        self._check_wanted = check_wanted
        self._last_look = 0.0
        self._clock = AwakeClock(WATCH_INTERVAL)
        self._seen: dict[int, tuple[_Sign, float]] = {}
        self._warned: dict[int, _Sign] = {}

    def wait(
        self,
        condition: Callable[[float, float, float], bool],
        busy: Callable[[], list[int]],
        deadline: Deadline = NEVER,
    ) -> None:
        """Waits until ``condition(seconds, pause, yield)`` holds, and looks at the ``busy()`` workers now and then.

        Raises LostWorker as ``look`` does, and TimeoutError after ``deadline``.
        """
        start = time.monotonic()
        patience = self._patience.now()
        while not condition(deadline.slice(WATCH_INTERVAL), patience.pause, patience.yield_):
            self._go_on(busy, deadline)
            patience = ASLEEP
        self._patience.learn(time.monotonic() - start)

    def deliver(self, busy: Callable[[], list[int]], deadline: Deadline = NEVER) -> None:
        """Waits until everything that workers were told is on its way; raises as ``wait`` does."""
        while not self._workers.all_sent and not self._workers.deliver(
            range(len(self._workers)), deadline.slice(WATCH_INTERVAL)
        ):
            self._go_on(busy, deadline)

    def await_message(self, worker: int, deadline: Deadline = NEVER) -> None:
        """Waits until a worker has said something for ``Workers.pop_message``; raises as ``wait`` does.

        The other workers are not looked at. They may seem stuck while nobody reads what they have to say.
        """
        while not self._workers.has_heard(worker, deadline.slice(WATCH_INTERVAL)):
            self._check_wanted()
            self._look_at(worker, self._clock.now())
            deadline.check([worker])

    def _go_on(self, busy: Callable[[], list[int]], deadline: Deadline) -> None:
        self._check_wanted()
        workers = busy()
        self.look(workers)
        deadline.check(workers)

    def look_now_and_then(self, busy: Callable[[], list[int]]) -> None:
        """Looks at the busy workers if it is time: a stuck one must be found also while others keep the caller busy."""
        now = time.monotonic()
        if now - self._last_look > WATCH_INTERVAL:
            self._last_look = now
            self.look(busy())

    def look(self, workers: list[int]) -> None:
        """Raises LostWorker for the first worker that is dead, or that was stuck for too long and is ended here."""
        self.warn_of_copies()
        for worker in workers:
            if not self._workers.is_alive(worker):
                garbled = f" after {_GARBAGE}" if self._mailroom.is_garbled(worker) else ""
                raise self._workers.lost(worker, f"{self._doing(worker)}{garbled}")
        now = self._clock.now()
        for worker in workers:
            self._look_at(worker, now)

    def warn_of_copies(self) -> None:
        """Warns of environments that have forked a copy of their worker which came back, if there are new ones."""
        self._copies.warn()

    def _look_at(self, worker: int, now: float) -> None:
        """Judges a worker by the time since it last showed a sign of life."""
        if self._mailroom.is_garbled(worker):
            self._workers.end_one(worker)
            raise LostWorker(worker, f"was ended: {_GARBAGE}")
        # What it was given counts too: one that has just got something to do may not have begun.
        # And what travels: one that has much to say, or is told much, is not stuck.
        sign = self._cell(worker), self._mailroom.received(worker), self._workers.traffic(worker)
        seen, since = self._seen.get(worker, (None, now))
        if sign != seen:
            self._seen[worker] = sign, now
            return
        limit, name = self._limit(worker)
        if limit is not None and now - since > limit:
            self._end_stuck(worker, limit, name)
        if limit is None and now - since > failures.STUCK_WARNING_AFTER and self._warned.get(worker) != sign:
            self._warned[worker] = sign
            warnings.warn(
                f"Environment {self.env_of(worker)} (worker {worker}, {self._workers.where(worker)}) has not finished "
                f"for {now - since:.0f} s. Pass {name}=seconds to have stuck environments ended.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _end_stuck(self, worker: int, limit: float, name: str) -> NoReturn:
        self._workers.end_one(worker)
        del self._seen[worker]
        is_at_work = self.is_at_work(worker)
        what = f"environment {self.env_of(worker)} had not finished" if is_at_work else "it did nothing"
        raise LostWorker(worker, f"was ended: {what} after {limit:g} s ({name})", is_stuck=True)

    def _limit(self, worker: int) -> tuple[float | None, str]:
        """Returns how many seconds a worker may take for what it is doing, and the argument that says so."""
        if self.activity_of(worker) == Activity.MAKING:
            return self._policy.start_timeout, "start_timeout"
        return self._policy.step_timeout, "step_timeout"

    def activity_of(self, worker: int) -> Activity:
        """Returns what a worker is doing, or was doing when it died."""
        found = int(self._progress[self._bounds[worker][0], 1])
        return Activity(found) if found in _ACTIVITIES else Activity.ANYTHING  # it may have written anything there

    def env_of(self, worker: int) -> int:
        """Returns the environment that a worker is at, or was at when it died; its last one if it was at none."""
        first, last = self._bounds[worker]
        return min(first + self._row(worker), last - 1)

    def is_at_work(self, worker: int) -> bool:
        """Returns whether a worker is at some environment, or was when it died."""
        first, last = self._bounds[worker]
        return self._row(worker) < last - first

    def _row(self, worker: int) -> int:
        return self._cell(worker) % 2**32

    def _cell(self, worker: int) -> int:
        return int(self._progress[self._bounds[worker][0], 0])

    def _doing(self, worker: int) -> str:
        return f" while environment {self.env_of(worker)} was at work" if self.is_at_work(worker) else ""


@dataclass
class _Start:
    """What a worker that starts is doing, and since when."""

    doing: str
    since: float
    warned: bool = False


@final
class Startup:
    """Waits for workers that start, and tells them where to work.

    A worker says which environment it makes, and in the end what its environments show, or why there are none. Then it
    is told what the whole fleet looks like (``WorkerSetup``) and is given the block. From then on it takes turns.

    Args:
        workers: The workers.
        start_timeout: Seconds that a worker may take to begin, and then for each environment; None sets no limit.
        check_wanted: Raises if whoever waits is not to wait any longer.
    """

    def __init__(self, workers: Workers, start_timeout: float | None, check_wanted: Callable[[], None]) -> None:
        self._workers, self._start_timeout = workers, start_timeout
        self._check_wanted = check_wanted
        self._clock = AwakeClock(WATCH_INTERVAL)
        self._without_block = set(range(len(workers)))
        self._mailroom: _core.Mailroom | None = None
        self._setup, self._descriptor = b"", -1

    def envs_of(self, workers: Iterable[int]) -> list[EnvFace]:
        """Waits until these workers have made their environments, and returns what these show, in order.

        Raises the error of the first environment that could not be made. Raises LostWorker for the first worker that
        ended, or that took too long and is ended here.
        """
        starts = {worker: self._begin("it had not begun to make its environments") for worker in workers}
        answers: dict[int, Answer] = {}
        while starts:
            self._workers.await_words(list(starts), WATCH_INTERVAL)
            self._check_wanted()
            for worker in list(starts):
                self._hear(worker, starts, answers)
        return all_made(answers)

    def hand_out(self, setup: WorkerSetup, mailroom: _core.Mailroom, descriptor: int) -> None:
        """Tells all workers where to work, and keeps what they are told for those that take another's place.

        Args:
            setup: What they are told.
            mailroom: Where they get their work.
            descriptor: The open file of the block, which must stay open.
        """
        self._setup, self._mailroom, self._descriptor = dumps_by_value(setup), mailroom, descriptor
        for worker in range(len(self._workers)):
            self._tell_where(worker)

    def start_in_place(self, worker: int, task: ShardTask) -> None:
        """Starts a worker in place of one that has ended, and returns when it can work; raises as ``envs_of`` does."""
        assert self._mailroom is not None
        self._without_block.add(worker)
        self._workers.replace(worker, task)
        self._mailroom.clear(worker)
        self.envs_of([worker])
        self._tell_where(worker)

    def dismiss(self) -> None:
        """Tells workers that wait for the block that there will be none."""
        self._workers.dismiss(self._without_block)

    def _tell_where(self, worker: int) -> None:
        with signals_blocked():
            self._workers.tell(worker, self._setup, self._descriptor)
            self._without_block.discard(worker)
        self.settle(worker)

    def settle(self, worker: int) -> None:
        """Waits until a worker has taken what it was told; raises LostWorker as ``envs_of`` does."""
        start = self._begin("it had not taken over the block")
        while not self._workers.deliver([worker], WATCH_INTERVAL):
            self._check_wanted()
            self._look_at(worker, start)
        if not self._workers.is_alive(worker):
            raise self._workers.lost(worker)

    def _begin(self, doing: str) -> _Start:
        return _Start(doing, self._clock.now())

    def _hear(self, worker: int, starts: dict[int, _Start], answers: dict[int, Answer]) -> None:
        while (message := self._workers.hear(worker)) is not None:
            word = pickle.loads(message)
            if not isinstance(word, Making):
                answers[worker] = word
                del starts[worker]
                return
            starts[worker] = self._begin(f"environment {word.env_index} was still being made")
        self._look_at(worker, starts[worker])

    def _look_at(self, worker: int, start: _Start) -> None:
        seconds = self._clock.now() - start.since
        if self._start_timeout is not None and seconds > self._start_timeout:
            self._workers.end_one(worker)
            cause = f"was ended: {start.doing} after {self._start_timeout:g} s (start_timeout)"
            raise LostWorker(worker, cause, is_stuck=True)
        if seconds > failures.STUCK_WARNING_AFTER and not start.warned:
            start.warned = True
            limit = "for ever" if self._start_timeout is None else f"up to {self._start_timeout:g} s"
            warnings.warn(
                f"Worker {worker} ({self._workers.where(worker)}) is slow to start: {start.doing} after "
                f"{seconds:.0f} s. It is waited for {limit} (start_timeout).",
                RuntimeWarning,
                stacklevel=2,
            )
