"""`sweep` and `resume_sweep`: trials one after another, or several at once, until there are enough."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import final

from envfleet._names import explains_names
from envfleet._single import EnvMaker
from envfleet.train.algorithms.registry import learner_class
from envfleet.train.config import TrainConfig
from envfleet.train.folders.folder import AnyPath
from envfleet.train.folders.trust import AllowImport
from envfleet.train.running.loggers.registry import check_loggers
from envfleet.train.running.progress_line import ProgressLine
from envfleet.train.running.reporting import duration, score
from envfleet.train.running.run import interruptions
from envfleet.train.sweeping.folder import PrunerName, SweepFolder, SweepPlan, new_sweep_path
from envfleet.train.sweeping.results import SweepResult, read_result, shown
from envfleet.train.sweeping.space import SearchSpace, default_search_space
from envfleet.train.sweeping.study import Study, optuna_module
from envfleet.train.sweeping.trial import TrialOutcome, TrialTask, run_trial
from envfleet.train.sweeping.workers import Workers

_EVALUATIONS = 10
"""Evaluations of a trial, if the configuration does not say when to evaluate."""

_FAILURES_IN_A_ROW = 3
_DEATHS_OF_A_TRIAL = 3


@explains_names
def sweep(
    config: TrainConfig,
    search: SearchSpace | None = None,
    *,
    trials: int = 20,
    sweep_dir: AnyPath | None = None,
    parallel: int = 1,
    pruner: PrunerName = "median",
    loggers: Sequence[str] = ("tensorboard",),
    progress: bool = True,
) -> SweepResult:
    """Train a configuration many times with other settings, suggested by Optuna, and find the best.

    A trial is an ordinary run in a folder of its own, judged by the mean return of its last evaluation. The first trial
    has the configuration's own settings where they are searched. Trials that do badly in an evaluation on their way are
    ended. Nothing that was finished is lost when the process is killed: `resume_sweep` goes on, with the trial that was
    under way as well. With the same seed the same settings are suggested, unless several trials run at once.

    Args:
        config: of the algorithm, as for `train`. Without `eval_every`, trials are evaluated ten times.
        search: what to search: `uniform`, `loguniform` or `choice` by the names of settings; by default
            `default_search_space(config)`. A range of a whole number is one of whole numbers.
        trials: how many trials there are to be, those that were ended early or failed included.
        sweep_dir: the sweep's folder, which must not hold a sweep yet; by default one below `runs/`.
        parallel: how many trials to train at once, each in a process of its own.
        pruner: what ends trials early: "median" (worse than half of the others so far), "halving" (successive halving:
            of three trials one goes on, again and again) or "none".
        loggers: as for `train`.
        progress: False prints nothing.
    """
    learner_class(config)  # refuses what is no configuration
    optuna_module()
    if not config.eval_every:
        config = replace(config, eval_every=max(1, config.total_steps // _EVALUATIONS))
    plan = SweepPlan(config, default_search_space(config) if search is None else search, trials, pruner)
    folder = SweepFolder(Path(sweep_dir) if sweep_dir is not None else new_sweep_path(config))
    folder.check_free()
    _check(parallel, loggers)
    with folder.locked():
        folder.check_free()
        with folder.left_if_begun():
            folder.write(plan)
            return _Sweep(folder, plan, tuple(loggers), progress).run(parallel)


@explains_names
def resume_sweep(
    sweep_dir: AnyPath,
    *,
    env: str | EnvMaker | None = None,
    trials: int | None = None,
    parallel: int = 1,
    loggers: Sequence[str] = ("tensorboard",),
    progress: bool = True,
    allow_import: AllowImport = False,
) -> SweepResult:
    """Go on with a sweep that was stopped or killed; trials that were under way go on from their last checkpoint.

    Args:
        sweep_dir: the sweep's folder.
        env: as for `load_agent`.
        trials: another number of trials altogether, to extend a sweep, finished or not.
        parallel: as for `sweep`; it may differ from what it was.
        loggers: as for `sweep`.
        progress: as for `sweep`.
        allow_import: for a sweep that was not begun here by you, as for `load_agent`.
    """
    optuna_module()
    folder = SweepFolder(Path(sweep_dir))
    told = folder.read_allowed(allow_import, env)
    plan = told if trials is None else replace(told, trials=trials)
    _check(parallel, loggers)
    with folder.locked():
        if plan != told:
            folder.write(plan)
        return _Sweep(folder, plan, tuple(loggers), progress).run(parallel)


def _check(parallel: int, loggers: Sequence[str]) -> None:
    if isinstance(parallel, bool) or not isinstance(parallel, int) or parallel < 1:
        raise ValueError(f"parallel must be an integer of at least 1, got {parallel!r}.")
    check_loggers(tuple(loggers))


@final
class _Sweep:
    """A sweep under way."""

    def __init__(self, folder: SweepFolder, plan: SweepPlan, loggers: tuple[str, ...], progress: bool) -> None:
        self._folder, self._plan, self._loggers, self._progress = folder, plan, loggers, progress
        self._study = Study(folder, plan)
        self._waiting = self._study.unfinished()
        self._failures: list[Exception] = []
        self._deaths: Counter[int] = Counter()
        self._stopped_by: signal.Signals | None = None

    def run(self, parallel: int) -> SweepResult:
        self._say(f"sweep folder: {self._folder.path}")
        if self._waiting:
            numbers = ", ".join(map(str, self._waiting))
            self._say(f"going on with what was interrupted: trial {numbers}")
        with closing(self._study), ProgressLine(self._progress) as line:
            if parallel == 1:
                self._one_by_one(line)
            else:
                self._several_at_once(parallel, line)
            return read_result(self._folder, self._plan, self._study, self._stopped_by)

    def _one_by_one(self, line: ProgressLine) -> None:
        while self._stopped_by is None and (task := self._next()) is not None:
            number = task.number
            line.show(f"trial {number} of {self._plan.trials}", now=True)
            outcome = run_trial(task, lambda place, value: self._evaluated(number, place, value))  # noqa: B023
            line.show("", now=True)
            self._settle(task, outcome)

    def _several_at_once(self, parallel: int, line: ProgressLine) -> None:
        with interruptions() as noted, Workers(parallel) as workers:
            while True:
                if noted and self._stopped_by is None:
                    self._stopped_by = noted[0]
                    workers.interrupt()
                while self._stopped_by is None and workers.free and (task := self._next()) is not None:
                    workers.give(task)
                if not workers.busy:
                    return
                line.show(f"{workers.busy} trials under way")
                for task, outcome in workers.outcomes(self._evaluated):
                    line.show("", now=True)
                    if isinstance(outcome, int):
                        self._lost(task, outcome)
                    else:
                        self._settle(task, outcome)

    def _next(self) -> TrialTask | None:
        """The next trial: one that was interrupted, else a new one, or none if there are enough."""
        if not self._waiting and len(self._study.trials()) >= self._plan.trials:
            return None
        number = self._waiting.pop(0) if self._waiting else self._study.suggest()
        values = self._study.values(number)
        return TrialTask(number, self._plan.config, values, self._folder.trial(number), self._loggers)

    def _evaluated(self, number: int, place: int, value: float) -> bool:
        return self._study.report(number, place, value)

    def _settle(self, task: TrialTask, outcome: TrialOutcome) -> None:
        if outcome.signal is not None:
            self._stopped_by = self._stopped_by or signal.Signals(outcome.signal)
        if outcome.state is None:
            return  # it goes on when the sweep does
        if outcome.error is not None and not outcome.begun and not self._folder.any_begun():
            raise outcome.error  # it is not these settings: no trial could begin
        facts = {"run": task.run_dir.name, "steps": outcome.step, "seconds": round(outcome.seconds, 3)}
        if outcome.error is not None:
            facts["error"] = f"{type(outcome.error).__name__}: {outcome.error}"
        self._study.tell(task.number, outcome.state, outcome.value, facts)
        self._say(self._line(task, outcome))
        self._failures = [*self._failures, outcome.error] if outcome.error is not None else []
        if len(self._failures) == _FAILURES_IN_A_ROW:
            raise self._failures[-1]

    def _lost(self, task: TrialTask, exit_code: int) -> None:
        """A process has died with its trial, which another one takes up, unless it dies of it again and again."""
        if self._stopped_by is not None:
            return
        self._deaths[task.number] += 1
        died = f"its process died (exit code {exit_code})"
        if self._deaths[task.number] < _DEATHS_OF_A_TRIAL:
            self._say(f"trial {task.number}: {died}; it goes on from its last checkpoint")
            self._waiting.append(task.number)
        else:
            error = RuntimeError(f"{died} {_DEATHS_OF_A_TRIAL} times")
            self._settle(task, TrialOutcome("FAIL", error=error))

    def _line(self, task: TrialTask, outcome: TrialOutcome) -> str:
        value = "-" if outcome.value is None else score(outcome.value)
        at = f"{outcome.step:,} steps in {duration(outcome.seconds)}"
        what = {
            "COMPLETE": f"return {value} after {at}",
            "PRUNED": f"ended early with return {value} after {at}",
            "FAIL": f"failed: {' '.join(str(outcome.error).split())}",
        }
        settings = " ".join(f"{name}={shown(setting)}" for name, setting in task.values.items())
        return f"trial {task.number}: {what[outcome.state or 'FAIL']} ({settings})"

    def _say(self, line: str) -> None:
        if self._progress:
            print(line, flush=True)
