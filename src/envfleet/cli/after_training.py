"""The steps after a training: evaluation, curves, a video, and commands to try next."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable

from envfleet.cli.errors import INTERRUPTED, explained
from envfleet.cli.settings import RunOptions
from envfleet.cli.showcase import need_no_screen
from envfleet.scenarios import format_randomize
from envfleet.train.atomic_files import replacing
from envfleet.train.judging.evaluation import evaluate
from envfleet.train.judging.plots import plot_runs
from envfleet.train.judging.scores import Evaluation
from envfleet.train.judging.showcase import showcase
from envfleet.train.judging.stage import may_offer_pictures
from envfleet.train.running.folder import RunFolder
from envfleet.train.running.reporting import TrainingResult, duration, program, resume_command, score

_NOT_MADE = "not made: "


def finish(result: TrainingResult, options: RunOptions) -> int:
    """Evaluate, plot and film a finished run's agent, and print where everything is; returns the exit code.

    If one part fails, a line says so, and the other parts are still done. The training is not lost.
    """
    began = time.monotonic()
    parts: dict[str, Callable[[], str]] = {}
    if options.eval_episodes:
        parts["evaluation"] = lambda: _evaluate(result, options.eval_episodes)
    parts["curves"] = lambda: plot_runs(result.run_dir).name
    if options.showcase:
        parts["showcase"] = lambda: _film(result)
    print(f"\nIn {result.run_dir}:")
    failed = set()
    try:
        for name, make in parts.items():
            outcome = _outcome(make)
            failed |= {name} if outcome.startswith(_NOT_MADE) else set()
            _say(name, outcome)
    except KeyboardInterrupt:
        say_what_is_left(result)
        return INTERRUPTED
    folder = RunFolder(result.run_dir)
    _say("weights", f"{folder.actor.name}, {folder.critic.name}")
    _say("metrics", f"{folder.metrics.name}, also for TensorBoard")
    print(f"\nTime: {duration(result.seconds)} training, {duration(time.monotonic() - began)} for the rest.")
    print("\nTo try next:")
    films = "showcase" not in failed and may_offer_pictures(result.agent.config.env_id)
    for command in _next_commands(result, films, "tensorboard" in options.loggers):
        print(f"    {command}")
    return 0


def say_what_is_left(result: TrainingResult) -> None:
    """Print how to get the remaining parts, if an interruption came after the end of the training."""
    command = resume_command(result.run_dir, result.agent.config.env_id)
    print(f"\nInterrupted, but the training is complete. For the rest:\n    {command}")


def _outcome(make: Callable[[], str]) -> str:
    try:
        return make()
    except Exception as error:
        sentence = explained(error) or f"{type(error).__name__}: {error}"
        return f"{_NOT_MADE}{' '.join(sentence.split())}"


def _evaluate(result: TrainingResult, episodes: int) -> str:
    found = evaluate(result.agent, episodes=episodes, backend=result.agent.config.backend)
    path = result.run_dir / "evaluation.json"
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


def _film(result: TrainingResult) -> str:
    need_no_screen()
    shown = showcase(result.agent, path=result.run_dir / "showcase.mp4")
    return f"{shown.path.name}, {shown.still.name} (returns {', '.join(map(score, shown.returns))})"


def _say(name: str, what: str) -> None:
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
