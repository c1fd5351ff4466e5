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
from envfleet.cli.runs import chosen_run
from envfleet.cli.settings import Request, RunOptions, given_algo, parse_request
from envfleet.train.algorithms.presets import BEST_ALGO, preset_changes
from envfleet.train.config import TrainConfig
from envfleet.train.folders.finding import find_seeds
from envfleet.train.folders.trust import modules_named

if TYPE_CHECKING:
    from envfleet.train.running.reporting import TrainingResult


@dataclass(frozen=True)
class _Resumption:
    """Continue a stopped run; the result is the same as without the stop. With --total-steps, extend a run.

    What was switched off when the run was begun stays off, and what was made after the training is not made again.

    Attributes:
        resume: the run's folder. A folder of runs means the newest in it, and latest the newest in runs/. The folder
            of a training with --seeds continues all its seeds. All its settings stay as they are.
        total_steps: extend the run to this number of steps altogether. Learning rates then fall to 0 at the new end.
        eval_episodes: number of evaluation episodes after the training, other than the run was told; 0 for none.
        run: what to do in addition.
        permission: what the run may import.
    """

    resume: Annotated[Path, arg(metavar="RUN")]
    run: OmitArgPrefixes[RunOptions]
    permission: OmitArgPrefixes[Permission]
    total_steps: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None
    eval_episodes: Annotated[int | None, arg(metavar="INT", help_behavior_hint="")] = None


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if any(text == "--resume" or text.startswith("--resume=") for text in argv):
        return _resume(argv)
    request = parse_request(argv)
    look_here(bool(modules_named(request.config)))
    if given_algo(argv) is None:
        _say_algorithm(request.config)
    _say_preset(request.config)
    request.options.check()
    if request.init_from is not None:
        request = request.starting_from(chosen_run(request.init_from))
    if request.seeds:
        from envfleet.cli.seeds import train_seeds

        return train_seeds(request)
    return _train(request)


def _train(request: Request) -> int:
    # Late: until here torch, which takes seconds to load, was not needed.
    from envfleet.train.running.run import RunContext, begin_run, new_run_path

    options = request.options
    context = RunContext.of(loggers=options.loggers, wandb=options.wandb, pictures=options.watch)
    path = request.run_dir or new_run_path(request.config)
    with options.watching(path):
        result = begin_run(request.config, path, context, request.init_from, options.history())
    return _ended(result, options, None)


def _resume(argv: Sequence[str]) -> int:
    asked, others = parse_known(_Resumption, "train", argv)
    if others:
        raise UsageError(
            f"a run goes on with its own settings, so leave out {shlex.join(others)} and write\n"
            f"    envfleet train --resume {shlex.quote(str(asked.resume))}"
        )
    asked.run.check()
    if asked.eval_episodes is not None and asked.eval_episodes < 0:
        raise UsageError(f"--eval-episodes must be 0 or more, got {asked.eval_episodes}.")
    seeds = find_seeds(asked.resume)
    if seeds is not None:
        from envfleet.cli.seeds import resume_seeds

        return resume_seeds(seeds, asked.run, asked.permission, asked.total_steps)
    return _resume_run(chosen_run(asked.resume), asked)


def _resume_run(path: Path, asked: _Resumption) -> int:
    from envfleet.train.folders.folder import RunFolder
    from envfleet.train.running.run import RunContext, resume_run

    allowed = asked.permission.for_run(path)
    context = RunContext.of(loggers=asked.run.loggers, wandb=asked.run.wandb, pictures=asked.run.watch)
    with asked.run.watching(path):
        result = resume_run(RunFolder(path), context, None, asked.total_steps, allowed)
    return _ended(result, asked.run, asked.eval_episodes)


def _ended(result: TrainingResult, options: RunOptions, eval_episodes: int | None) -> int:
    """Evaluate, plot and film the agent, unless the run was stopped; return the exit code."""
    from envfleet.cli.after_training import finish, say_what_is_left

    if result.stopped_by is None:
        return finish(result, options, eval_episodes) if result.finished else INTERRUPTED
    if result.finished:
        say_what_is_left(result)
    return 128 + result.stopped_by


def _say_algorithm(config: TrainConfig) -> None:
    known = config.env_id in BEST_ALGO
    why = f"which is tuned for {config.env_id}" if known else "which takes every kind of action"
    print(f"Algorithm: {config.algo}, {why}; --algo takes another.", end=" " if _has_no_preset(config) else "\n")


def _say_preset(config: TrainConfig) -> None:
    changes = preset_changes(config.env_id, config.algo)
    in_force = [f"{name}={value}" for name, value in changes.items() if getattr(config, name) == value]
    if in_force:
        print(f"Settings known to suit {config.env_id}: {', '.join(in_force)}.")
    elif _has_no_preset(config):
        print(f"No tuned settings for {config.env_id}: the defaults of {config.algo} are used.")


def _has_no_preset(config: TrainConfig) -> bool:
    return not preset_changes(config.env_id, config.algo)
