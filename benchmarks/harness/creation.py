"""How long a fleet takes to make and how much memory it then holds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from .contestant import Contestant, ContestantError
from .throughput import Entrant
from .workloads import Workload


@dataclass(frozen=True)
class CreationSample:
    """One creation: wall-clock seconds until the first reset has returned, and bytes of PSS gained."""

    seconds: float
    pss_bytes: int


@dataclass(frozen=True)
class CreationResult:
    """One engine's creations with their medians."""

    engine: str
    samples: tuple[CreationSample, ...]
    median_seconds: float
    median_pss_bytes: float


def compare_creation(
    workload: Workload, entrants: Sequence[Entrant], repeats: int, directory: Path, progress: Callable[[str], None]
) -> tuple[CreationResult, ...]:
    """Create each engine's fleet in turns, one at a time, each in a new process.

    A new process because the second fleet of one would find the memory that the first left behind. An engine that
    fails is not in the result: why is told where its throughput is.
    """
    able = [each for each in entrants if each.error is None and each.engine.why_not(workload) is None]
    samples: dict[str, list[CreationSample]] = {each.engine.name: [] for each in able}
    for repeat in range(repeats):
        progress(f"creating {workload.name}: repeat {repeat + 1} of {repeats}")
        for entrant in able if repeat % 2 == 0 else reversed(able):
            try:
                samples[entrant.engine.name].append(_create(entrant, workload, directory))
            except ContestantError as error:
                progress(f"{entrant.engine.name}: {error}")
    return tuple(_summed_up(engine, tuple(found)) for engine, found in samples.items() if len(found) == repeats)


def _create(entrant: Entrant, workload: Workload, directory: Path) -> CreationSample:
    request = entrant.engine.request(workload, mix=False)
    with closing(Contestant(entrant.engine.name, entrant.python, request, directory)) as contestant:
        ready = contestant.ready()
    return CreationSample(ready.seconds, ready.pss_bytes)


def _summed_up(engine: str, samples: tuple[CreationSample, ...]) -> CreationResult:
    return CreationResult(
        engine,
        samples,
        statistics.median(sample.seconds for sample in samples),
        statistics.median(sample.pss_bytes for sample in samples),
    )
