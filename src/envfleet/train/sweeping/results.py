"""What came out of a sweep: its trials, the best of them, and a table."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from envfleet.train.config import TrainConfig
from envfleet.train.folders.folder import AnyPath
from envfleet.train.judging.inline import table_html
from envfleet.train.running.reporting import score
from envfleet.train.sweeping.folder import SweepFolder, SweepPlan
from envfleet.train.sweeping.study import Study

if TYPE_CHECKING:
    import optuna

_SHOWN = 10
_STATES: Mapping[str, Literal["complete", "pruned", "failed"]] = {
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
}


@dataclass(frozen=True)
class SweepTrial:
    """One trial of a sweep.

    Attributes:
        number: from 0 on, in the order in which they were suggested.
        state: "complete"; "pruned", ended early; "failed"; or "interrupted", to be gone on with.
        value: the mean return of the last evaluation; None before the first.
        settings: what this trial had of what is searched.
        run_dir: its run, an ordinary one.
        error: what it failed with; None if it did not.
    """

    number: int
    state: Literal["complete", "pruned", "failed", "interrupted"]
    value: float | None
    settings: Mapping[str, Any]
    run_dir: Path
    error: str | None = None


@dataclass(frozen=True, eq=False)
class SweepResult:
    """What `sweep` returns. Printed, and in a notebook, it is a table of the best trials.

    Attributes:
        sweep_dir: the sweep's folder.
        config: the configuration of every trial, but for what was searched.
        trials: all trials, by number.
        finished: whether there are as many as there were to be.
        stopped_by: the signal that came, SIGINT (Ctrl-C) or SIGTERM; None if none did.
        importance: how much each setting that was searched explains of being among the best trials, the most important
            first, in shares of 1; empty if there are too few trials to tell.
    """

    sweep_dir: Path
    config: TrainConfig
    trials: Sequence[SweepTrial]
    finished: bool
    stopped_by: signal.Signals | None
    importance: Mapping[str, float]

    @property
    def ranking(self) -> list[SweepTrial]:
        """The trials that ran to their end, the best first."""
        complete = [trial for trial in self.trials if trial.state == "complete" and trial.value is not None]
        return sorted(complete, key=lambda trial: (-(trial.value or 0.0), trial.number))

    @property
    def best(self) -> SweepTrial | None:
        """The trial with the highest return of those that ran to their end; None if there is none."""
        return next(iter(self.ranking), None)

    @property
    def best_config(self) -> TrainConfig:
        """The configuration of the best trial, to be trained again, longer or with other seeds."""
        if self.best is None:
            raise ValueError(f"no trial of {self.sweep_dir} has run to its end, so there is no best one.")
        return dataclasses.replace(self.config, **self.best.settings)

    def counts(self) -> str:
        """How many trials there are of each state, as a sentence."""
        states = [trial.state for trial in self.trials]
        shown = [f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states))]
        return f"{len(states)} trials: {', '.join(shown)}." if shown else "No trial yet."

    def __str__(self) -> str:
        lines = self._table()
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        texts = ["  ".join(map(str.rjust, line, widths)) for line in lines]
        return "\n".join([self.counts(), *(f"    {text}" for text in texts if self.ranking)])

    def _repr_html_(self) -> str:
        headline, *rows = self._table()
        return table_html(headline, rows, self.counts())

    def _table(self) -> list[list[str]]:
        names = list(self.importance) or list(dict.fromkeys(name for trial in self.ranking for name in trial.settings))
        rows = [
            [str(trial.number), score(trial.value or 0.0), *(shown(trial.settings.get(name)) for name in names)]
            for trial in self.ranking[:_SHOWN]
        ]
        return [["trial", "return", *names], *rows]


def read_sweep(sweep_dir: AnyPath) -> SweepResult:
    """Return what a sweep has found so far, also while it goes on.

    Args:
        sweep_dir: the sweep's folder.
    """
    folder = SweepFolder(Path(sweep_dir))
    plan = folder.read()
    study = Study(folder, plan)
    try:
        return read_result(folder, plan, study, None)
    finally:
        study.close()


def read_result(folder: SweepFolder, plan: SweepPlan, study: Study, stopped_by: signal.Signals | None) -> SweepResult:
    """Put together what a study holds."""
    trials = [_trial(folder, study, trial) for trial in study.trials()]
    over = [trial for trial in trials if trial.state != "interrupted"]
    finished = len(over) >= plan.trials and len(over) == len(trials)
    return SweepResult(folder.path, plan.config, trials, finished, stopped_by, study.importance())


def shown(value: Any) -> str:
    """A setting as a table shows it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _trial(folder: SweepFolder, study: Study, trial: optuna.trial.FrozenTrial) -> SweepTrial:
    seen = trial.intermediate_values
    last = trial.value if trial.value is not None else seen[max(seen)] if seen else None
    return SweepTrial(
        trial.number,
        _STATES.get(trial.state.name, "interrupted"),
        last,
        study.decoded(trial),
        folder.trial(trial.number),
        trial.user_attrs.get("error"),
    )
