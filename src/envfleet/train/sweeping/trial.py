"""One trial: an ordinary run, begun or gone on with, that asks at every evaluation whether to go on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from envfleet.train.config import TrainConfig
from envfleet.train.folders.folder import RunFolder
from envfleet.train.running.metrics import read_metrics
from envfleet.train.running.reporting import Progress, TrainingResult
from envfleet.train.running.run import resume, train

Judge: TypeAlias = Callable[[int, float], bool]
"""Takes the number of an evaluation and its mean return; says whether the trial is to end there."""


@dataclass(frozen=True)
class TrialTask:
    """What to train.

    Attributes:
        number: the trial's.
        config: the configuration of the whole sweep, valid in itself.
        values: what this trial has instead.
        run_dir: the run's folder; a run that is there is gone on with.
        loggers: where to log besides metrics.csv.
    """

    number: int
    config: TrainConfig
    values: dict[str, Any]
    run_dir: Path
    loggers: tuple[str, ...]


@dataclass(frozen=True)
class TrialOutcome:
    """How it ended.

    Attributes:
        state: COMPLETE, PRUNED or FAIL, as Optuna calls them; None if it was interrupted and is to go on later.
        value: the mean return of the last evaluation; None if there was none.
        step: environment steps made.
        seconds: spent training.
        signal: the signal that came meanwhile, if one did.
        error: what it failed with.
        begun: whether it got as far as making its environments and networks.
    """

    state: str | None
    value: float | None = None
    step: int = 0
    seconds: float = 0.0
    signal: int | None = None
    error: Exception | None = None
    begun: bool = True


def run_trial(task: TrialTask, judge: Judge) -> TrialOutcome:
    """Train a trial to its end, or until `judge` ends it; what goes wrong is returned, and only Ctrl-C raised."""
    pruned = False

    def look(progress: Progress) -> bool:
        nonlocal pruned
        value = progress.row.get("eval_return")
        if value is not None:
            pruned = judge(progress.step // task.config.eval_every, float(value))
        return not pruned

    try:
        result = _run(task, look)
    except Exception as error:
        return TrialOutcome("FAIL", error=error, begun=RunFolder(task.run_dir).config.exists())
    if not result.finished and not pruned:
        return TrialOutcome(None, None, result.step, result.seconds, signal=result.stopped_by)
    state = "COMPLETE" if result.finished else "PRUNED"  # one that was to end in its very last evaluation is complete
    return TrialOutcome(state, _last_evaluation(task.run_dir), result.step, result.seconds, signal=result.stopped_by)


def _run(task: TrialTask, look: Callable[[Progress], bool]) -> TrainingResult:
    shown: dict[str, Any] = {"callback": look, "progress": False, "loggers": task.loggers}
    if RunFolder(task.run_dir).config.exists():
        return resume(task.run_dir, env=task.config.env_id, **shown)
    config = dataclasses.replace(task.config, **task.values)
    return train(config, run_dir=task.run_dir, **shown)


def _last_evaluation(run_dir: Path) -> float | None:
    values = read_metrics(run_dir)["eval_return"].tolist()
    return next((float(value) for value in reversed(values) if not math.isnan(value)), None)
