"""`envfleet train`: train an agent, then evaluate, plot and film it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import OmitArgPrefixes, arg

from envfleet.cli.environment import look_here
from envfleet.cli.errors import INTERRUPTED, UsageError
from envfleet.cli.parsing import parse_known
from envfleet.cli.permission import Permission
from envfleet.cli.settings import Request, RunOptions, parse_request
from envfleet.train.algorithms.registry import preset_changes
from envfleet.train.config import TrainConfig
from envfleet.train.running.trust import modules_named

if TYPE_CHECKING:
    from envfleet.train.running.reporting import TrainingResult


@dataclass(frozen=True)
class _Resumption:
    """Continue a stopped run; the result is the same as without the stop.

    Attributes:
        resume: the run's folder. All its settings stay as they are.
        run: what to do in addition.
        permission: what the run may import.
    """

    resume: Annotated[Path, arg(metavar="RUN")]
    run: OmitArgPrefixes[RunOptions]
    permission: OmitArgPrefixes[Permission]


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if any(text == "--resume" or text.startswith("--resume=") for text in argv):
        return _resume(argv)
    request = parse_request(argv)
    look_here(bool(modules_named(request.config)))
    _say_preset(request.config)
    return _train(request)


def _train(request: Request) -> int:
    # Late: until here torch, which takes seconds to load, was not needed.
    from envfleet.train.running.run import train

    request.options.check()
    options = request.options
    result = train(request.config, run_dir=request.run_dir, loggers=options.loggers, wandb=options.wandb)
    return _ended(result, options)


def _resume(argv: Sequence[str]) -> int:
    asked, others = parse_known(_Resumption, "train", argv)
    if others:
        raise UsageError(
            f"a run goes on with its own settings, so leave out {shlex.join(others)} and write\n"
            f"    envfleet train --resume {shlex.quote(str(asked.resume))}"
        )
    from envfleet.train.running.run import resume

    asked.run.check()
    allowed = asked.permission.for_run(asked.resume)
    result = resume(asked.resume, loggers=asked.run.loggers, wandb=asked.run.wandb, allow_import=allowed)
    return _ended(result, asked.run)


def _ended(result: TrainingResult, options: RunOptions) -> int:
    """Evaluate, plot and film the agent, unless the run was stopped; return the exit code."""
    from envfleet.cli.after_training import finish, say_what_is_left

    if result.stopped_by is None:
        return finish(result, options) if result.finished else INTERRUPTED
    if result.finished:
        say_what_is_left(result)
    return 128 + result.stopped_by


def _say_preset(config: TrainConfig) -> None:
    changes = preset_changes(config.env_id, config.algo)
    in_force = [f"{name}={value}" for name, value in changes.items() if getattr(config, name) == value]
    if in_force:
        print(f"Settings known to suit {config.env_id}: {', '.join(in_force)}.")
    elif not changes:
        print(f"No tuned settings for {config.env_id}: the defaults of {config.algo} are used.")
