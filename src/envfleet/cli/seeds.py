"""`envfleet train --seeds 0 1 2`: one run per seed, one after another, and one summary of all."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envfleet.cli.after_training import EVALUATION_FILE, evaluation_part, film_of, outcome, say
from envfleet.cli.errors import INTERRUPTED
from envfleet.cli.permission import Permission
from envfleet.cli.settings import Request, RunOptions
from envfleet.errors import DamagedRunError
from envfleet.train.atomic_files import replacing
from envfleet.train.config import TrainConfig
from envfleet.train.folders.finding import SEEDS_FILE
from envfleet.train.folders.folder import RunFolder
from envfleet.train.judging.plots import plot_runs
from envfleet.train.running.reporting import TrainingResult, duration, resume_command, score
from envfleet.train.running.run import RunContext, begin_run, new_run_path, resume_run

SUMMARY_FILE = "summary.json"


@dataclass(frozen=True)
class _Group:
    """The folder of several seeds."""

    path: Path
    seeds: tuple[int, ...]

    def folder(self, seed: int) -> RunFolder:
        return RunFolder(self.path / f"seed{seed}")

    def begun(self) -> list[int]:
        return [seed for seed in self.seeds if self.folder(seed).config.exists()]

    def create(self, env_id: str) -> None:
        file = self.path / SEEDS_FILE
        if file.exists():
            raise FileExistsError(
                f"{self.path} already holds a training with several seeds; go on with it "
                f"({resume_command(self.path, env_id)}) or choose another folder."
            )
        with replacing(file) as temporary:
            temporary.write_text(json.dumps({"seeds": list(self.seeds)}) + "\n")

    @classmethod
    def read(cls, path: Path) -> _Group:
        file = path / SEEDS_FILE
        try:
            seeds = json.loads(file.read_text(encoding="utf-8"))["seeds"]
            return cls(path, tuple(int(seed) for seed in seeds))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedRunError(f'{file} is damaged: expected {{"seeds": [0, 1, ...]}} ({error}).') from error


def train_seeds(request: Request) -> int:
    """Train every seed of a request; return the exit code."""
    config, options = dataclasses.replace(request.config, seed=request.seeds[0]), request.options
    group = _Group(request.run_dir or _new_parent(config, request.seeds), request.seeds)
    group.create(request.config.env_id)

    def begin(seed: int) -> TrainingResult:
        context = RunContext.of(loggers=options.loggers, wandb=options.wandb, pictures=options.watch)
        path = group.folder(seed).path
        return begin_run(dataclasses.replace(config, seed=seed), path, context, request.init_from, options.history())

    try:
        with options.watching(group.path):
            return _train_all(group, begin, options)
    finally:
        if not group.begun():  # what cannot even begin leaves no folder behind
            (group.path / SEEDS_FILE).unlink()
            with suppress(OSError):
                group.path.rmdir()


def resume_seeds(path: Path, options: RunOptions, permission: Permission, total_steps: int | None) -> int:
    """Go on with a folder of several seeds: those that were stopped, then those that were not begun."""
    group = _Group.read(path)
    begun = group.begun()
    if not begun:
        raise FileNotFoundError(f"{path} holds no run yet: remove it, and start the training again.")
    # What the first one was told, and not what another file says: this one is trusted, or has just been allowed.
    first = group.folder(begun[0])
    allowed = permission.for_run(first.path)
    config, _ = first.read_allowed_config(allowed)
    config = config if total_steps is None else dataclasses.replace(config, total_steps=total_steps)
    history = first.read_history()

    def go_on(seed: int) -> TrainingResult:
        folder = group.folder(seed)
        context = RunContext.of(loggers=options.loggers, wandb=options.wandb, pictures=options.watch)
        if folder.config.exists():
            return resume_run(folder, context, None, total_steps, permission.for_run(folder.path))
        told = {"after_training": history["after_training"]} if "after_training" in history else {}
        return begin_run(dataclasses.replace(config, seed=seed), folder.path, context, history.get("init_from"), told)

    wanted = options.showcase and history.get("after_training", {}).get("showcase", True)
    with options.watching(group.path):
        return _train_all(group, go_on, dataclasses.replace(options, showcase=wanted))


def _train_all(group: _Group, train_one: Callable[[int], TrainingResult], options: RunOptions) -> int:
    results: dict[int, TrainingResult] = {}
    for number, seed in enumerate(group.seeds, start=1):
        print(f"\nSeed {seed}, {number} of {len(group.seeds)}:")
        result = results[seed] = train_one(seed)
        if result.stopped_by is not None or not result.finished:
            print(f"\nTo go on with all seeds:\n    {resume_command(group.path, result.agent.config.env_id)}")
            return INTERRUPTED if result.stopped_by is None else 128 + result.stopped_by
        _evaluate(result)
    _sum_up(group, results, options)
    return 0


def _evaluate(result: TrainingResult) -> None:
    episodes = result.agent.config.eval_episodes
    part = evaluation_part(result, episodes)
    if episodes and not part.is_there(result.run_dir):
        say("evaluation", outcome(part.make))


def _sum_up(group: _Group, results: dict[int, TrainingResult], options: RunOptions) -> None:
    rows = [_row(seed, result) for seed, result in results.items()]
    known = [row for row in rows if row["mean_return"] is not None]
    print(f"\nIn {group.path}:\n")
    print(_table(rows))
    summary: dict[str, Any] = {"seeds": rows}
    if known:
        worst = min(known, key=lambda row: row["mean_return"])
        best = max(known, key=lambda row: row["mean_return"])
        mean = statistics.fmean(row["mean_return"] for row in known)
        print(
            f"\nMean over {len(known)} seeds: {score(mean)}. Worst: {score(worst['mean_return'])} "
            f"(seed {worst['seed']}). Best: {score(best['mean_return'])} (seed {best['seed']}).\n"
        )
        summary |= {"mean_return": mean, "worst_return": worst["mean_return"], "worst_seed": worst["seed"]}
        if options.showcase:
            say("showcase", outcome(lambda: f"seed{best['seed']}/{film_of(results[best['seed']])}"))
    with replacing(group.path / SUMMARY_FILE) as temporary:
        temporary.write_text(json.dumps(summary, indent=2) + "\n")
    folders = [result.run_dir for result in results.values()]
    say("curves", outcome(lambda: plot_runs(folders, group.path / "curves.png").name))
    say("summary", SUMMARY_FILE)


def _row(seed: int, result: TrainingResult) -> dict[str, Any]:
    """What the table says of a seed: its evaluation, or without one the last 100 episodes of its training."""
    row = {"seed": seed, "steps": result.step, "seconds": round(result.seconds, 1), "restarts": result.restarts}
    file = result.run_dir / EVALUATION_FILE
    if result.agent.config.eval_episodes and file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
        names = ("mean_return", "interval_low", "interval_high", "min_return", "max_return", "episodes")
        return {**row, **{name: found[name] for name in names}}
    return {**row, "mean_return": result.mean_return}


def _table(rows: Sequence[dict[str, Any]]) -> str:
    judged = all("min_return" in row for row in rows)
    header = ["seed", "steps", "time", "mean return", *(["95 % interval", "worst", "best"] if judged else [])]
    lines = [header]
    for row in rows:
        mean = "-" if row["mean_return"] is None else score(row["mean_return"])
        line = [str(row["seed"]), f"{row['steps']:,}", duration(row["seconds"]), mean]
        if judged:
            low, high = row["interval_low"], row["interval_high"]
            interval = "-" if low is None else f"{score(low)} .. {score(high)}"
            line += [interval, score(row["min_return"]), score(row["max_return"])]
        lines.append(line)
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "    " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )


def _new_parent(config: TrainConfig, seeds: Sequence[int]) -> Path:
    path = new_run_path(config)
    name = f"seeds{'-'.join(map(str, seeds))}" if len(seeds) <= 5 else f"{len(seeds)}seeds"
    return path.with_name(path.name.replace(f"seed{config.seed}", name, 1))
