"""Waiting for workers that make their environments: told when it takes long, ended when it takes too long."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, final

from envfleet.vector import lost
from envfleet.vector.runtime import AwakeClock
from envfleet.vector.failures import Failure
from envfleet.vector.lost import LostWorker
from envfleet.vector.process import protocol
from envfleet.vector.process.workers import Crew
from envfleet.vector.spaces import EnvFace

Answer: TypeAlias = "list[EnvFace] | Failure"


@dataclass
class _Start:
    """What a worker has been at, and since when."""

    doing: str
    since: float
    warned: bool = False


@final
class Arrivals:
    """Each worker says which environment it makes, and in the end what they show, or why there are none.

    Args:
        crew: The workers.
        start_timeout: Seconds that a worker may take to begin, and then for each environment; None sets no limit.

    Attributes:
        check_wanted: Raises if whoever waits is not to wait any longer.
    """

    def __init__(self, crew: Crew, start_timeout: float | None) -> None:
        self._crew, self._start_timeout = crew, start_timeout
        self.check_wanted: Callable[[], None] = lambda: None
        self._clock = AwakeClock(protocol.WATCH_INTERVAL)

    def answers(self, workers: Iterable[int]) -> list[Answer]:
        """What these workers say in the end, in order.

        A LostWorker tells of the first that ended, or that was ended because it took too long.
        """
        wanted = list(workers)
        starts = {worker: self._begin("it had not begun to make its environments") for worker in wanted}
        answers: dict[int, Answer] = {}
        while starts:
            self._crew.await_words(list(starts), protocol.WATCH_INTERVAL)
            self.check_wanted()
            for worker in list(starts):
                self._hear(worker, starts, answers)
        return [answers[worker] for worker in wanted]

    def settle(self, worker: int) -> None:
        """Waits until a worker takes over what it was told; raises as ``answers`` does."""
        start = self._begin("it had not taken over the block")
        while not self._crew.deliver([worker], protocol.WATCH_INTERVAL):
            self.check_wanted()
            self._look_at(worker, start)
        if not self._crew.is_alive(worker):
            raise self._crew.lost(worker)

    def _begin(self, doing: str) -> _Start:
        return _Start(doing, self._clock.now())

    def _hear(self, worker: int, starts: dict[int, _Start], answers: dict[int, Answer]) -> None:
        while (message := self._crew.hear(worker)) is not None:
            word = pickle.loads(message)
            if not isinstance(word, protocol.Making):
                answers[worker] = word
                del starts[worker]
                return
            starts[worker] = self._begin(f"environment {word.env_index} was still being made")
        self._look_at(worker, starts[worker])

    def _look_at(self, worker: int, start: _Start) -> None:
        seconds = self._clock.now() - start.since
        if self._start_timeout is not None and seconds > self._start_timeout:
            self._crew.end_one(worker)
            cause = f"was ended: {start.doing} after {self._start_timeout:g} s (start_timeout)"
            raise LostWorker(worker, cause, is_stuck=True)
        if seconds > lost.STUCK_WARNING_AFTER and not start.warned:
            start.warned = True
            limit = "for ever" if self._start_timeout is None else f"up to {self._start_timeout:g} s"
            warnings.warn(
                f"Worker {worker} (pid {self._crew.processes[worker].pid}) is slow to start: {start.doing} after "
                f"{seconds:.0f} s. It is waited for {limit} (start_timeout).",
                RuntimeWarning,
                stacklevel=2,
            )
