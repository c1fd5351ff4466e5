"""`envfleet sweep`: train many times with other settings and find the best."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, arg

from envfleet.cli.environment import look_here
from envfleet.cli.errors import INTERRUPTED, UsageError
from envfleet.cli.parsing import parse_known
from envfleet.cli.permission import Permission
from envfleet.cli.settings import CommandForm, optional_path, parse_settings
from envfleet.cli.writing import train_arguments
from envfleet.train.config import TrainConfig
from envfleet.train.folders.trust import modules_named
from envfleet.train.running.loggers.registry import check_loggers
from envfleet.train.sweeping.space import DEFAULT, SearchSpace, check_search, parse_search

if TYPE_CHECKING:
    from envfleet.train.sweeping.results import SweepResult

_EVAL_EPISODES = 20
"""Fewer than `envfleet train` plays: a trial is evaluated often, only to be compared."""

_PURPOSE = (
    "Train many times with other settings, suggested by Optuna, and find the best. Trials are ordinary runs. Those "
    "that do badly are ended early. What was finished survives a kill at any time: --resume SWEEP goes on.\n\n"
    "Every setting below that is not searched is the same for all trials."
)
_SEARCH_HELP = (
    "what to search: SETTING=loguniform(1e-4,1e-2), SETTING=uniform(0.9,1), SETTING=choice(8,16); or only SETTING for "
    "its usual range; default for all that is searched by default."
)
_LOGGERS_HELP = "where trials log besides metrics.csv: tensorboard, wandb, or what register_logger() added."


@dataclass(frozen=True)
class _Resumption:
    """Go on with a sweep that was stopped or killed, or extend it by --trials; its other settings stay as they are.

    Attributes:
        resume: the sweep's folder.
        trials: another number of trials altogether.
        parallel: how many trials to train at once.
        loggers: where trials log besides metrics.csv.
        permission: what the sweep may import.
    """

    resume: Annotated[Path, arg(metavar="SWEEP")]
    permission: OmitArgPrefixes[Permission]
    trials: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    parallel: int = 1
    loggers: Annotated[tuple[str, ...], arg(metavar="NAME ...")] = ("tensorboard",)


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if any(text == "--resume" or text.startswith("--resume=") for text in argv):
        return _resume(argv)
    config, search, form = parse_request(argv)
    look_here(bool(modules_named(config)))
    # Late: until here torch, which takes seconds to load, was not needed.
    from envfleet.train.sweeping.sweep import sweep

    result = sweep(
        config,
        search,
        trials=form.trials,
        sweep_dir=form.sweep_dir,
        parallel=form.parallel,
        pruner=form.pruner,
        loggers=form.loggers,
    )
    return _ended(result)


def parse_request(argv: Sequence[str]) -> tuple[TrainConfig, SearchSpace, Any]:
    """Read the arguments of a new sweep: what to train, what to search, and the command's own settings."""
    config, form = parse_settings(_command(), argv)
    _check(form.trials, form.parallel, form.loggers)
    search = parse_search(form.search, config)
    check_search(config, search)
    return config, search, form


def _resume(argv: Sequence[str]) -> int:
    asked, others = parse_known(_Resumption, "sweep", argv)
    if others:
        raise UsageError(
            f"a sweep goes on with its own settings, so leave out {shlex.join(others)} and write\n"
            f"    envfleet sweep --resume {shlex.quote(str(asked.resume))}"
        )
    _check(1 if asked.trials is None else asked.trials, asked.parallel, asked.loggers)
    from envfleet.train.sweeping.sweep import resume_sweep

    allowed = asked.permission.for_sweep(asked.resume)
    shown: dict[str, Any] = {"parallel": asked.parallel, "loggers": asked.loggers, "allow_import": allowed}
    return _ended(resume_sweep(asked.resume, trials=asked.trials, **shown))


def _command() -> CommandForm:
    search = Annotated[
        tuple[str, ...],
        arg(metavar="SETTING[=DISTRIBUTION] ...", help=_SEARCH_HELP, help_behavior_hint=f"(default: {DEFAULT})"),
    ]
    pruner = "what ends bad trials early: below the median of the others, successive halving, or nothing."
    resumed = "go on with a sweep that was stopped or killed, or extend it: --resume SWEEP --trials MORE."
    own: list[tuple[str, Any, Any]] = [
        ("trials", Annotated[int, arg(help="how many trials there are to be.")], 20),
        ("search", search, ()),
        ("parallel", Annotated[int, arg(help="how many trials to train at once, each in its own process.")], 1),
        ("pruner", Annotated[Literal["median", "halving", "none"], arg(help=pruner)], "median"),
        ("sweep_dir", optional_path("DIR", "the sweep's folder; by default a new one in runs/ENV."), None),
        ("resume", optional_path("SWEEP", resumed), None),
        ("loggers", Annotated[tuple[str, ...], arg(metavar="NAME ...", help=_LOGGERS_HELP)], ("tensorboard",)),
    ]
    return CommandForm("sweep", _PURPOSE, own, {"eval_episodes": _EVAL_EPISODES})


def _check(trials: int, parallel: int, loggers: Sequence[str]) -> None:
    for name, number in (("trials", trials), ("parallel", parallel)):
        if number < 1:
            raise UsageError(f"--{name} must be 1 or more, got {number}.")
    try:
        check_loggers(tuple(loggers))
    except ValueError as error:
        raise UsageError(f"--{error}") from error


def _ended(result: SweepResult) -> int:
    """Print what came out, and draw it; return the exit code."""
    from envfleet.cli.after_training import outcome, say
    from envfleet.train.running.reporting import program
    from envfleet.train.sweeping.importance import plot_importance

    print(f"\n{result}\n\nIn {result.sweep_dir}:")
    if result.importance:
        say("importance", outcome(lambda: plot_importance(result.sweep_dir).name))
    say("trials", "trial0000, …: ordinary runs, for envfleet evaluate, plot and showcase")
    say("study", "study.db, for Optuna's own tools: sqlite:///study.db, study_name sweep")
    if result.best is not None:
        print("\nTo train with the best settings:")
        print(f"    {program('envfleet')} {train_arguments(result.best_config)}")
    if not result.finished:
        print("\nTo go on:")
        print(f"    {program('envfleet')} sweep --resume {shlex.quote(str(result.sweep_dir))}")
        return INTERRUPTED if result.stopped_by is None else 128 + result.stopped_by
    return 0
