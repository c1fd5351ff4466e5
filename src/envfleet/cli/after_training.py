"""The steps after a training: evaluation, curves, a video, and commands to try next."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from envfleet.cli.errors import INTERRUPTED, explained
from envfleet.cli.settings import RunOptions
from envfleet.cli.showcase import need_no_screen
from envfleet.scenarios import format_randomize
from envfleet.train.atomic_files import replacing
from envfleet.train.filming.showcase import SHOWCASE_FILE, showcase
from envfleet.train.filming.stage import may_offer_pictures
from envfleet.train.folders.folder import RunFolder
from envfleet.train.judging.evaluation import evaluate
from envfleet.train.judging.plots import CURVES_FILE, plot_runs
from envfleet.train.judging.scores import Evaluation
from envfleet.train.running.reporting import TrainingResult, duration, program, resume_command, score

EVALUATION_FILE = "evaluation.json"
_NOT_MADE = "not made: "


def finish(result: TrainingResult, options: RunOptions, eval_episodes: int | None = None) -> int:
    """Evaluate, plot and film a finished run's agent, and print where everything is; returns the exit code.

    What is there already, and was made since the training ended, is not made again. If one part fails, a line says so,
    and the other parts are still done. The training is not lost.

    Args:
        result: the training.
        options: what else was asked for.
        eval_episodes: how many episodes to evaluate; None for as many as the run was told.
    """
    began = time.monotonic()
    print(f"\nIn {result.run_dir}:")
    failed = set()
    try:
        for part in _parts(result, options, eval_episodes):
            said = "already there: " + part.file if part.is_there(result.run_dir) else outcome(part.make)
            failed |= {part.name} if said.startswith(_NOT_MADE) else set()
            say(part.name, said)
    except KeyboardInterrupt:
        say_what_is_left(result)
        return INTERRUPTED
    folder = RunFolder(result.run_dir)
    weights = [file.name for file in (folder.actor, folder.critic) if file.exists()]
    say("weights", f"{', '.join(weights)}{_best(result)}")
    say("metrics", f"{folder.metrics.name}, also for TensorBoard")
    print(f"\nTime: {duration(result.seconds)} training, {duration(time.monotonic() - began)} for the rest.")
    print("\nTo try next:")
    films = "showcase" not in failed and may_offer_pictures(result.agent.config.env_id)
    for command in _next_commands(result, films, "tensorboard" in options.loggers):
        print(f"    {command}")
    return 0


@dataclass(frozen=True)
class _Part:
    """Something to make after the training: its file, and how; `again` makes it even if it is there."""

    name: str
    file: str
    make: Callable[[], str]
    again: bool = False

    def is_there(self, run_dir: Path) -> bool:
        file, checkpoint = run_dir / self.file, RunFolder(run_dir).checkpoint
        return not self.again and file.exists() and file.stat().st_mtime_ns >= checkpoint.stat().st_mtime_ns


def _parts(result: TrainingResult, options: RunOptions, eval_episodes: int | None) -> Iterator[_Part]:
    wanted = RunFolder(result.run_dir).read_history().get("after_training", {})
    episodes = result.agent.config.eval_episodes if eval_episodes is None else eval_episodes
    if episodes:
        yield evaluation_part(result, episodes, again=eval_episodes is not None)
    yield _Part("curves", CURVES_FILE, lambda: plot_runs(result.run_dir).name)
    if options.showcase and wanted.get("showcase", True):
        yield _Part("showcase", SHOWCASE_FILE, lambda: film_of(result))


def evaluation_part(result: TrainingResult, episodes: int, *, again: bool = False) -> _Part:
    """Return what evaluates a finished run's agent and writes evaluation.json."""
    return _Part("evaluation", EVALUATION_FILE, lambda: _evaluate(result, episodes), again)


def _best(result: TrainingResult) -> str:
    if result.best_return is None:
        return ""
    return f"; best/ with a return of {score(result.best_return)} in an evaluation during the training"


def say_what_is_left(result: TrainingResult) -> None:
    """Print how to get the remaining parts, if an interruption came after the end of the training."""
    command = resume_command(result.run_dir, result.agent.config.env_id)
    print(f"\nInterrupted, but the training is complete. For the rest:\n    {command}")


def outcome(make: Callable[[], str]) -> str:
    """Make something and return what to say of it; if it fails, why."""
    try:
        return make()
    except Exception as error:
        sentence = explained(error) or f"{type(error).__name__}: {error}"
        return f"{_NOT_MADE}{' '.join(sentence.split())}"


def _evaluate(result: TrainingResult, episodes: int) -> str:
    found = evaluate(result.agent, episodes=episodes, backend=result.agent.config.backend)
    path = result.run_dir / EVALUATION_FILE
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(found.to_json_dict(), indent=2) + "\n")
    return f"{path.name}: {_summary(found)}"


def _summary(found: Evaluation) -> str:
    decimals = 1 if max(map(abs, found.returns)) >= 10 else 3
    mean, half, worst, best = (
        f"{value:.{decimals}f}"
        for value in (found.mean_return, found.half_interval, found.min_return, found.max_return)
    )
    interval = f" ± {half}" if found.episodes > 1 else ""
    return f"mean return {mean}{interval} over {found.episodes} episodes (worst {worst}, best {best})"


def film_of(result: TrainingResult) -> str:
    """Film a finished run's agent and return what to say of it."""
    need_no_screen()
    shown = showcase(result.agent, path=result.run_dir / SHOWCASE_FILE)
    return f"{shown.path.name}, {shown.still.name} (returns {', '.join(map(score, shown.returns))})"


def say(name: str, what: str) -> None:
    """Print a line of the list of what was made."""
    print(f"    {name:<12}{what}", flush=True)


def _next_commands(result: TrainingResult, films: bool, tensorboard: bool) -> list[str]:
    """Commands that work as they are printed: none that needs what this run, or its environment, has not."""
    config, run, envfleet = result.agent.config, shlex.quote(str(result.run_dir)), program("envfleet")
    commands = [f"{envfleet} evaluate {run} --episodes 1000 --seed 1"]
    if config.env_id.startswith("LunarLander"):
        commands = [f"{envfleet} evaluate {run} --sweep gravity=-11:-2:6"]
    if config.randomize:
        texts = [f"{name}={text}" for name, text in format_randomize(config.randomize).items()]
        commands.append(f"{envfleet} evaluate {run} --randomize {shlex.join(texts)}")
    if films:
        commands.append(f"{envfleet} showcase {run} --episodes 5 --seed 1")
    if tensorboard:
        commands.append(f"{program('tensorboard')} --logdir {run}")
    return commands
