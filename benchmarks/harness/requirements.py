"""What the engine must show, and whether it did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .creation import CreationResult
from .engines import (
    ALE_VECTOR,
    BARE,
    ENVFLEET_CALLER,
    ENVFLEET_FIRST_READY,
    ENVFLEET_NATIVE,
    ENVFLEET_NATIVE_LIVE,
    ENVFLEET_PROCESS,
    ENVFLEET_SYNC,
    ENVPOOL,
    GYMNASIUM_ASYNC,
    GYMNASIUM_SYNC,
    GYMNASIUM_VECTOR,
    MJ_STEP,
    SB3_DUMMY,
    TIANSHOU_DUMMY,
)
from .environments import BUSY, BUSY_EXPONENTIAL, DICT_IMAGE
from .throughput import EngineResult, WorkloadResult, quantile
from .workloads import ANT, CARTPOLE, CHEETAH, CREATION_WORKLOAD, LANDER, PONG, Workload

PROCESS = (ENVFLEET_PROCESS, ENVFLEET_CALLER)
NATIVE = (ENVFLEET_NATIVE, ENVFLEET_NATIVE_LIVE)
SERIAL = (GYMNASIUM_SYNC, SB3_DUMMY, TIANSHOU_DUMMY)
IDEAL = "ideal"


@dataclass(frozen=True)
class Requirement:
    """On `workload`, one of `engines` does at least `at_least` times the steps per second of the best of `baselines`.

    The baseline `IDEAL` is one environment in a plain loop on every core.
    """

    workload: Workload
    engines: tuple[str, ...]
    baselines: tuple[str, ...]
    at_least: float


@dataclass(frozen=True)
class Outcome:
    """One engine held against one requirement; between `low` and `high` is the middle half of its turns' ratios."""

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


def _required(env_id: str, engines: tuple[str, ...], baseline: str, shares: dict[int, float]) -> list[Requirement]:
    """The same for several numbers of environments."""
    return [Requirement(Workload(env_id, size), engines, (baseline,), share) for size, share in shares.items()]


REQUIREMENTS = (
    *_required(LANDER, PROCESS, GYMNASIUM_ASYNC, {64: 8.0}),
    *_required(LANDER, PROCESS, GYMNASIUM_SYNC, {64: 1.6}),
    *_required(CHEETAH, PROCESS, GYMNASIUM_ASYNC, {64: 8.0}),
    *_required(CHEETAH, PROCESS, GYMNASIUM_SYNC, {64: 1.6}),
    *_required(CARTPOLE, PROCESS, GYMNASIUM_ASYNC, {64: 20.0}),
    *_required(CARTPOLE, PROCESS, GYMNASIUM_SYNC, {64: 1.5}),
    *_required(CARTPOLE, (ENVFLEET_SYNC,), GYMNASIUM_SYNC, {64: 1.3}),
    *_required(LANDER, PROCESS, IDEAL, {64: 0.87, 8: 0.75}),
    *_required(CHEETAH, PROCESS, IDEAL, {64: 0.90, 8: 0.75}),
    *_required(CARTPOLE, PROCESS, IDEAL, {64: 0.80, 8: 0.85}),
    *_required(BUSY, PROCESS, IDEAL, {8: 0.97}),
    *_required(BUSY_EXPONENTIAL, (ENVFLEET_FIRST_READY,), IDEAL, {8: 0.95}),
    Requirement(Workload(DICT_IMAGE, 64), (ENVFLEET_SYNC, *PROCESS), SERIAL, 2.0),
    *_required(CARTPOLE, NATIVE, ENVPOOL, {8: 15.0, 64: 20.0, 1024: 50.0}),
    *_required(CARTPOLE, NATIVE, GYMNASIUM_VECTOR, {1024: 4.0}),
    *_required(LANDER, NATIVE, ENVPOOL, {8: 1.8, 64: 1.1}),
    *_required(LANDER, NATIVE, GYMNASIUM_SYNC, {8: 4.0, 64: 4.0}),
    *_required(CHEETAH, NATIVE, ENVPOOL, {8: 1.4, 64: 1.2}),
    *_required(CHEETAH, NATIVE, MJ_STEP, {8: 0.9, 64: 0.9}),
    *_required(ANT, NATIVE, ENVPOOL, {8: 1.4, 64: 1.2}),
    *_required(ANT, NATIVE, MJ_STEP, {8: 0.9, 64: 0.9}),
    *_required(PONG, NATIVE[:1], ALE_VECTOR, {8: 0.95, 64: 0.95}),
)


def judge(results: Iterable[WorkloadResult], cores: int) -> list[Verdict]:
    """Verdicts on the requirements whose workload, baseline and at least one engine were measured."""
    by_workload = {result.workload: result for result in results}
    verdicts = []
    for requirement in REQUIREMENTS:
        result = by_workload.get(requirement.workload)
        baseline = _best_baseline(result, requirement.baselines, cores) if result else None
        if result is None or baseline is None:
            continue
        measured = [found for engine in requirement.engines if (found := result.of(engine))]
        outcomes = tuple(_outcome(found, baseline, requirement.at_least) for found in measured)
        if outcomes:
            claim = f"times the steps/s, {requirement.workload.name}"
            verdicts.append(_verdict(claim, baseline.engine, requirement.at_least, outcomes))
    return verdicts


def _best_baseline(result: WorkloadResult, names: tuple[str, ...], cores: int) -> EngineResult | None:
    found = [_ideal(result, cores) if name == IDEAL else result.of(name) for name in names]
    return max((each for each in found if each is not None), key=lambda each: each.median, default=None)


def _ideal(result: WorkloadResult, cores: int) -> EngineResult | None:
    bare = result.of(BARE)
    if bare is None:
        return None
    figures = tuple(figure * cores for figure in bare.steps_per_second)
    return EngineResult(IDEAL, steps_per_second=figures, median=bare.median * cores)


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
    return Outcome(ours.engine, ratio, quantile(ratios, 0.25), quantile(ratios, 0.75), ratio >= at_least)


def _creation_outcome(engine: str, ratio: float, ratios: list[float]) -> Outcome:
    return Outcome(engine, ratio, min(ratios), max(ratios), ratio > 1.0)


def _verdict(claim: str, baseline: str, at_least: float, outcomes: tuple[Outcome, ...]) -> Verdict:
    return Verdict(claim, baseline, at_least, outcomes, any(outcome.met for outcome in outcomes))
