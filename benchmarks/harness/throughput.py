"""Steps per second of several engines on one workload, measured in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from .contestant import Contestant, ContestantError
from .engines import Engine
from .protocol import Ready, Turn
from .workloads import Workload

STARTED_AT_ONCE = 2


@dataclass(frozen=True)
class Plan:
    """How long to measure: `repeats` turns of `slice_seconds` for each engine.

    Many short turns instead of few long ones: other tenants of a shared machine take its cores away for some
    milliseconds at a time, which spoils the turns it hits; the median is one of the others.
    """

    slice_seconds: float
    repeats: int


@dataclass(frozen=True)
class Entrant:
    """An engine with the Python that has it; or why there is none."""

    engine: Engine
    python: str
    error: str | None = None


@dataclass(frozen=True)
class EngineResult:
    """One engine on one workload.

    `spread` is the width of the middle half of the turns / median; `call_seconds` the median time of one call of
    `step`; `idle_cpu` the share of a core that its processes used while other engines had their turns; `engine_share`
    of the time was not the policy's; with an `error` there are no figures.
    """

    engine: str
    processes: int = 0
    steps_per_second: tuple[float, ...] = ()
    median: float = 0.0
    spread: float = 0.0
    call_seconds: float = 0.0
    idle_cpu: float = 0.0
    engine_share: float = 1.0
    versions: dict[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class WorkloadResult:
    """Every engine on one workload, in the order asked for; and those that have no place in it, with the reason."""

    workload: Workload
    engines: tuple[EngineResult, ...]
    left_out: dict[str, str] = field(default_factory=dict)

    def of(self, engine: str) -> EngineResult | None:
        """The result of one engine, None if it did not run or failed."""
        return next((found for found in self.engines if found.engine == engine and found.error is None), None)


@final
class Seat:
    """An entrant's place in a workload: its process, its turns so far, and what went wrong."""

    def __init__(self, entrant: Entrant) -> None:
        self.entrant = entrant
        self.name = entrant.engine.name
        self.error = entrant.error
        self.ready: Ready | None = None
        self.turns: list[Turn] = []
        self._contestant: Contestant | None = None

    def start(self, workload: Workload, directory: Path) -> None:
        """Start its process and wait until it can take turns."""
        if self.error is None:
            request = self.entrant.engine.request(workload, mix=True)
            self._contestant = Contestant(self.name, self.entrant.python, request, directory)
            self._try(self._get_ready)

    def take_turn(self, seconds: float) -> None:
        """Step for so long, unless something went wrong before."""
        if self.error is None:
            self._try(lambda: self._step(seconds))

    def hang_up(self) -> None:
        """Tell the process to end."""
        if self._contestant is not None:
            self._contestant.hang_up()

    def close(self) -> None:
        """End the process."""
        if self._contestant is not None:
            self._contestant.close()

    def _get_ready(self) -> None:
        assert self._contestant is not None
        self.ready = self._contestant.ready()

    def _step(self, seconds: float) -> None:
        assert self._contestant is not None
        self.turns.append(self._contestant.turn(seconds))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except ContestantError as error:
            self.error = str(error)

    def result(self) -> EngineResult:
        """Sum up."""
        if self.error is not None or self.ready is None:
            return EngineResult(self.name, error=self.error)
        figures = tuple(turn.steps / turn.seconds for turn in self.turns)
        median = statistics.median(figures)
        idle = sum(turn.idle_seconds for turn in self.turns)
        return EngineResult(
            engine=self.name,
            processes=self.ready.processes,
            steps_per_second=figures,
            median=median,
            spread=(quantile(figures, 0.75) - quantile(figures, 0.25)) / median,
            call_seconds=statistics.median(turn.seconds / turn.calls for turn in self.turns),
            idle_cpu=sum(turn.idle_cpu_seconds for turn in self.turns) / idle if idle else 0.0,
            engine_share=1.0 - statistics.median(turn.choosing_seconds / turn.seconds for turn in self.turns),
            versions=self.ready.versions,
        )


def quantile(figures: Sequence[float], share: float) -> float:
    """The figure that so large a share lies below."""
    return float(np.quantile(figures, share))


def compare(
    workload: Workload, entrants: Sequence[Entrant], plan: Plan, directory: Path, progress: Callable[[str], None]
) -> WorkloadResult:
    """Measure engines in turns, so that whatever else the machine does hits all of them alike."""
    left_out = {each.engine.name: why for each in entrants if (why := each.engine.why_not(workload))}
    seats = [Seat(each) for each in entrants if each.engine.name not in left_out]
    with ExitStack() as stack:
        for seat in seats:
            stack.callback(seat.close)
        progress(f"{workload.name}: starting {len(seats)} engines")
        with ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
            list(pool.map(lambda seat: seat.start(workload, directory), seats))
        progress(f"{workload.name}: {plan.repeats} turns each")
        for repeat in range(plan.repeats):
            for seat in _rotated(seats, repeat):
                seat.take_turn(plan.slice_seconds)
        for seat in seats:
            seat.hang_up()
    return WorkloadResult(workload, tuple(seat.result() for seat in seats), left_out)


def _rotated(seats: list[Seat], by: int) -> Iterator[Seat]:
    """Each repeat begins with another engine, so none always follows the same neighbour."""
    for index in range(len(seats)):
        yield seats[(index + by) % len(seats)]
