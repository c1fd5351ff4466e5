"""What the engine must show, and whether it did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .creation import CreationResult
from .engines import (
    BARE,
    ENVFLEET_CALLER,
    ENVFLEET_PROCESS,
    ENVFLEET_SYNC,
    GYMNASIUM_ASYNC,
    GYMNASIUM_SYNC,
)
from .environments import BUSY
from .throughput import EngineResult, WorkloadResult
from .workloads import CREATION_WORKLOAD, Workload

PROCESS = (ENVFLEET_PROCESS, ENVFLEET_CALLER)


@dataclass(frozen=True)
class Requirement:
    """On `workload`, one of `engines` does at least `at_least` times the steps per second of `baseline`."""

    workload: Workload
    engines: tuple[str, ...]
    baseline: str
    at_least: float


@dataclass(frozen=True)
class Outcome:
    """One engine held against one requirement; `low` and `high` are the ratios of the single repeats."""

    engine: str
    ratio: float
    low: float
    high: float
    met: bool


@dataclass(frozen=True)
class Verdict:
    """A requirement, met if one of its outcomes is; the first outcome is the default configuration's."""

    claim: str
    baseline: str
    at_least: float
    outcomes: tuple[Outcome, ...]
    met: bool


REQUIREMENTS = (
    Requirement(Workload("LunarLander-v3", 64), PROCESS, GYMNASIUM_ASYNC, 8.0),
    Requirement(Workload("LunarLander-v3", 64), PROCESS, GYMNASIUM_SYNC, 1.6),
    Requirement(Workload("HalfCheetah-v5", 64), PROCESS, GYMNASIUM_ASYNC, 8.0),
    Requirement(Workload("HalfCheetah-v5", 64), PROCESS, GYMNASIUM_SYNC, 1.6),
    Requirement(Workload("CartPole-v1", 64), PROCESS, GYMNASIUM_ASYNC, 20.0),
    Requirement(Workload("CartPole-v1", 64), PROCESS, GYMNASIUM_SYNC, 1.5),
    Requirement(Workload("CartPole-v1", 64), (ENVFLEET_SYNC,), GYMNASIUM_SYNC, 1.3),
    Requirement(Workload(BUSY, 8), PROCESS, BARE, 1.9),
)


def judge(results: Iterable[WorkloadResult]) -> list[Verdict]:
    """Verdicts on the requirements whose workload, baseline and at least one engine were measured."""
    by_workload = {result.workload: result for result in results}
    verdicts = []
    for requirement in REQUIREMENTS:
        result = by_workload.get(requirement.workload)
        baseline = result.of(requirement.baseline) if result else None
        if result is None or baseline is None:
            continue
        measured = [found for engine in requirement.engines if (found := result.of(engine))]
        outcomes = tuple(_outcome(found, baseline, requirement.at_least) for found in measured)
        if outcomes:
            claim = f"times the steps/s, {requirement.workload.name}"
            verdicts.append(_verdict(claim, requirement.baseline, requirement.at_least, outcomes))
    return verdicts


def judge_creation(workload: Workload, results: Sequence[CreationResult]) -> list[Verdict]:
    """Verdicts on time and memory: how many times the baseline's cost is of ours, which must be above one."""
    if workload != CREATION_WORKLOAD:
        return []
    by_name = {result.engine: result for result in results}
    baseline, ours = by_name.get(GYMNASIUM_ASYNC), by_name.get(ENVFLEET_PROCESS)
    if baseline is None or ours is None:
        return []
    pairs = list(zip(baseline.samples, ours.samples, strict=True))
    seconds = _creation_outcome(
        ours.engine,
        baseline.median_seconds / ours.median_seconds,
        [theirs.seconds / mine.seconds for theirs, mine in pairs],
    )
    memory = _creation_outcome(
        ours.engine,
        baseline.median_pss_bytes / ours.median_pss_bytes,
        [theirs.pss_bytes / mine.pss_bytes for theirs, mine in pairs],
    )
    return [
        _verdict(f"times less time to create {workload.name}", baseline.engine, 1.0, (seconds,)),
        _verdict(f"times less memory for {workload.name}", baseline.engine, 1.0, (memory,)),
    ]


def _outcome(ours: EngineResult, baseline: EngineResult, at_least: float) -> Outcome:
    ratio = ours.median / baseline.median
    ratios = [a / b for a, b in zip(ours.steps_per_second, baseline.steps_per_second, strict=True)]
    return Outcome(ours.engine, ratio, min(ratios), max(ratios), ratio >= at_least)


def _creation_outcome(engine: str, ratio: float, ratios: list[float]) -> Outcome:
    return Outcome(engine, ratio, min(ratios), max(ratios), ratio > 1.0)


def _verdict(claim: str, baseline: str, at_least: float, outcomes: tuple[Outcome, ...]) -> Verdict:
    return Verdict(claim, baseline, at_least, outcomes, any(outcome.met for outcome in outcomes))
