"""Steps per second of several engines on one workload, measured in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from . import engines, machine
from .workloads import Workload

LEAD_IN = 0.1


@dataclass(frozen=True)
class Plan:
    """How long to measure: `repeats` turns of `slice_seconds` for each engine."""

    slice_seconds: float
    repeats: int


@dataclass(frozen=True)
class EngineResult:
    """One engine on one workload.

    `spread` is (highest - lowest) / median; `idle_cpu` the share of a core that its worker processes used
    while other engines had their turns.
    """

    engine: str
    processes: int
    steps_per_second: tuple[float, ...]
    median: float
    spread: float
    idle_cpu: float


@dataclass(frozen=True)
class WorkloadResult:
    """Every engine on one workload, in the order asked for."""

    workload: Workload
    engines: tuple[EngineResult, ...]

    def of(self, engine: str) -> EngineResult | None:
        """The result of one engine, None if it did not run."""
        return next((result for result in self.engines if result.engine == engine), None)


@dataclass
class Contestant:
    """A started engine with its figures so far."""

    engine: str
    stepper: engines.Stepper
    pids: frozenset[int]
    figures: list[float] = field(default_factory=list)
    idle_cpu: float = 0.0
    idle_seconds: float = 0.0
    _rested_at: tuple[float, float] | None = None

    def take_turn(self, seconds: float) -> None:
        """Run for a slice of time and note the steps per second."""
        self._wake()
        _steps_per_second(self.stepper.step, seconds * LEAD_IN)
        self.figures.append(_steps_per_second(self.stepper.step, seconds))
        self._rest()

    def _wake(self) -> None:
        if self._rested_at is not None:
            cpu, clock = self._rested_at
            self.idle_cpu += machine.cpu_seconds(self.pids) - cpu
            self.idle_seconds += time.perf_counter() - clock

    def _rest(self) -> None:
        self._rested_at = machine.cpu_seconds(self.pids), time.perf_counter()

    def result(self) -> EngineResult:
        """Sum up."""
        median = statistics.median(self.figures)
        return EngineResult(
            engine=self.engine,
            processes=len(self.pids),
            steps_per_second=tuple(self.figures),
            median=median,
            spread=(max(self.figures) - min(self.figures)) / median,
            idle_cpu=self.idle_cpu / self.idle_seconds if self.idle_seconds else 0.0,
        )


def compare(workload: Workload, names: Sequence[str], plan: Plan, progress: Callable[[str], None]) -> WorkloadResult:
    """Measure engines in turns, so that whatever else the machine does hits all of them alike."""
    with ExitStack() as stack:
        contestants = []
        for name in names:
            progress(f"{workload.name}: starting {name}")
            contestants.append(_enter(name, workload, stack))
        for repeat in range(plan.repeats):
            progress(f"{workload.name}: repeat {repeat + 1} of {plan.repeats}")
            for contestant in _rotated(contestants, repeat):
                contestant.take_turn(plan.slice_seconds)
        return WorkloadResult(workload, tuple(contestant.result() for contestant in contestants))


def _enter(name: str, workload: Workload, stack: ExitStack) -> Contestant:
    before = machine.descendants()
    stepper = engines.start(name, workload)
    stack.callback(stepper.close)
    for _ in range(workload.mixing_rounds):
        stepper.step()
    return Contestant(name, stepper, machine.descendants() - before)


def _rotated(contestants: list[Contestant], by: int) -> Iterator[Contestant]:
    """Each repeat begins with another engine, so none always follows the same neighbour."""
    for index in range(len(contestants)):
        yield contestants[(index + by) % len(contestants)]


def _steps_per_second(step: Callable[[], int], seconds: float) -> float:
    """Step for so many seconds, at least once."""
    steps = 0
    begin = time.perf_counter()
    while True:
        steps += step()
        elapsed = time.perf_counter() - begin
        if elapsed >= seconds:
            return steps / elapsed
