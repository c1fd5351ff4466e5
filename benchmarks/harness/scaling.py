"""What more workers bring, and what a call of `step` costs as environments are added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .engines import ENGINES
from .throughput import Entrant, Plan, WorkloadResult, compare
from .workloads import Workload

FEWEST_SIZES = 3


@dataclass(frozen=True)
class Scaling:
    """Median steps per second of one engine by the number of its workers."""

    workload: Workload
    engine: str
    steps_per_second: dict[int, float]


@dataclass(frozen=True)
class CallCost:
    """A call of `step` costs about `base` seconds and `each` more for every environment, fitted over `sizes`."""

    env_id: str
    engine: str
    base_seconds: float
    each_seconds: float
    sizes: tuple[int, ...]


def worker_counts(cores: int) -> tuple[int, ...]:
    """1, 2, 4 and so on, up to the cores, and those."""
    powers = [1 << bit for bit in range(cores.bit_length()) if 1 << bit <= cores]
    return tuple(sorted({*powers, cores}))


def compare_workers(
    workload: Workload,
    entrants: Sequence[Entrant],
    cores: int,
    plan: Plan,
    directory: Path,
    progress: Callable[[str], None],
) -> tuple[Scaling, ...]:
    """Measure engines that can be told how many workers to have with 1 to `cores` of them, all in turns."""
    able = [
        each
        for each in entrants
        if each.error is None and each.engine.workers_option and each.engine.why_not(workload) is None
    ]
    variants = {
        (each.engine.name, count): Entrant(each.engine.with_workers(count), each.python)
        for each in able
        for count in worker_counts(cores)
    }
    result = compare(workload, list(variants.values()), plan, directory, progress)
    found: dict[str, dict[int, float]] = {each.engine.name: {} for each in able}
    for (name, count), variant in variants.items():
        if measured := result.of(variant.engine.name):
            found[name][count] = measured.median
    return tuple(Scaling(workload, name, speeds) for name, speeds in found.items() if speeds)


def call_costs(results: Sequence[WorkloadResult]) -> tuple[CallCost, ...]:
    """Fit a line to the time of a call, for every engine measured with enough numbers of environments."""
    points: dict[tuple[str, str], dict[int, float]] = {}
    for result in results:
        if result.workload.policy:
            continue
        for found in result.engines:
            if found.error is None and ENGINES[found.engine].per_call:
                times = points.setdefault((result.workload.env_id, found.engine), {})
                times[result.workload.num_envs] = found.call_seconds
    return tuple(
        _fitted(env_id, engine, times) for (env_id, engine), times in points.items() if len(times) >= FEWEST_SIZES
    )


def _fitted(env_id: str, engine: str, times: dict[int, float]) -> CallCost:
    """Least squares of relative errors: a microsecond matters with one environment and not with a thousand."""
    sizes, seconds = np.array(list(times), float), np.array(list(times.values()))
    lines = np.stack([np.ones_like(sizes), sizes], axis=1) / seconds[:, None]
    (base, each), *_ = np.linalg.lstsq(lines, np.ones_like(sizes), rcond=None)
    return CallCost(env_id, engine, float(base), float(each), tuple(times))
