"""What a run's folder says about the run: settings, metrics, evaluations, scenarios, films."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from envfleet.errors import DamagedRunError
from envfleet.train.judging.curves import Run, load_run
from envfleet.train.judging.scores import t_quantile

EVALUATION_FILE = "evaluation.json"
SCENARIOS_FILE = "scenarios.json"
"""What `envfleet evaluate RUN --sweep` leaves beside its picture: the numbers."""

_FILMS = ("showcase.mp4", "showcase.gif")
_END_SHARE = 0.1
"""The part of a run whose episodes say how well it ended."""


@final
@dataclass(frozen=True)
class Score:
    """An evaluation that a folder holds; None for what it does not say.

    Attributes:
        episodes: how many.
        mean: of the returns.
        half: half of the mean's 95 % interval.
        std: standard deviation of the returns.
        worst: the lowest return.
        best: the highest return.
        length: the mean length of an episode.
        step: of the training, if that was under way.
    """

    episodes: int
    mean: float
    half: float | None
    std: float | None
    worst: float | None
    best: float | None
    length: float | None
    step: int | None


@final
@dataclass(frozen=True)
class Point:
    """One scenario: the value of a parameter and what the returns were there, or why there are none."""

    parameter: str
    value: Any
    score: Score | None
    error: str | None


@final
@dataclass(frozen=True)
class Facts:
    """A run, as its folder tells it.

    Attributes:
        run: its metrics and settings.
        version: the envfleet that wrote it; None if it does not say.
        history: what config.json says about how the run came about.
        evaluation: of the agent, after the training.
        best: the best evaluation during the training.
        scenarios: what the latest sweep of `envfleet evaluate` found.
        film: .mp4 or .gif.
        still: a picture of it.
    """

    run: Run
    version: str | None
    history: Mapping[str, Any]
    evaluation: Score | None
    best: Score | None
    scenarios: Sequence[Point]
    film: Path | None
    still: Path | None

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.run.folder

    @property
    def steps(self) -> int:
        """Environment steps made."""
        return int(self.run.metrics["step"][-1])

    @property
    def seconds(self) -> float | None:
        """Spent training."""
        return _last(self.run, "seconds")

    @property
    def steps_per_second(self) -> float | None:
        """Over the whole training."""
        return self.steps / self.seconds if self.seconds else None

    @property
    def end_return(self) -> float | None:
        """The mean return of the episodes that ended in the last tenth of the training."""
        returns = self.run.metrics.get("episode_return")
        if returns is None:
            return None
        late = self.run.metrics["step"] > self.steps * (1 - _END_SHARE)
        known = returns[late & np.isfinite(returns)]
        return float(known.mean()) if len(known) else None

    def setting(self, name: str) -> Any:
        """A setting by its name, dotted where it is part of another; None if there is none."""
        text = self.run.settings.get(name)
        return None if text is None else json.loads(text)

    @property
    def title(self) -> str:
        """Such as "PPO on LunarLander-v3"."""
        algo, env = self.setting("algo"), self.setting("env_id")
        return f"{str(algo).upper()} on {env}" if algo and env else self.folder.resolve().name


def read_facts(folder: Path) -> Facts:
    """Read a run's folder. Nothing is imported and nothing executed; a file that is damaged is refused."""
    best = folder / "best" / EVALUATION_FILE
    content = _read(folder / "config.json") or {}
    known = {"format", "envfleet", "algo", "config", "custom_networks"}
    version = content.get("envfleet")
    return Facts(
        run=load_run(folder),
        version=version if isinstance(version, str) else None,
        history={name: value for name, value in content.items() if name not in known},
        evaluation=_score_in(folder / EVALUATION_FILE),
        best=_score_in(best),
        scenarios=_points(folder / SCENARIOS_FILE),
        film=next((folder / name for name in _FILMS if (folder / name).is_file()), None),
        still=next((path for path in [folder / "showcase.png"] if path.is_file()), None),
    )


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean of some runs' numbers, and half of its 95 % interval by Student's t if there are several."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, t_quantile(0.975, len(values) - 1) * deviation / math.sqrt(len(values))


def _last(run: Run, column: str) -> float | None:
    values = run.metrics.get(column)
    known = np.empty(0) if values is None else values[np.isfinite(values)]
    return float(known[-1]) if len(known) else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise DamagedRunError(f"{path} is damaged: {error}. Make it again, or remove it.") from error
    if not isinstance(content, dict):
        raise DamagedRunError(f"{path} is damaged: expected an object, got {type(content).__name__}.")
    return content


def _score_in(path: Path) -> Score | None:
    content = _read(path)
    return None if content is None else _score(content, path)


def _score(content: Mapping[str, Any], path: Path) -> Score:
    numbers = {name: _number(content.get(name)) for name in _NUMBERS}
    mean, episodes = numbers["mean_return"], numbers["episodes"]
    if mean is None or episodes is None:
        raise DamagedRunError(f"{path} is damaged: mean_return and episodes must be numbers. Evaluate the run again.")
    high, step = numbers["interval_high"], numbers["step"]
    return Score(
        episodes=int(episodes),
        mean=mean,
        half=None if high is None else high - mean,
        std=numbers["std_return"],
        worst=numbers["min_return"],
        best=numbers["max_return"],
        length=numbers["mean_length"],
        step=None if step is None else int(step),
    )


_NUMBERS = (
    "mean_return",
    "episodes",
    "interval_high",
    "std_return",
    "min_return",
    "max_return",
    "mean_length",
    "step",
)


def _points(path: Path) -> list[Point]:
    content = _read(path)
    if content is None:
        return []
    rows = content.get("scenarios")
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "parameter" in row for row in rows):
        raise DamagedRunError(f"{path} is damaged: expected a list of scenarios. Evaluate the sweep again.")
    return [
        Point(str(row["parameter"]), row.get("value"), None, str(row["error"]))
        if "error" in row
        else Point(str(row["parameter"]), row.get("value"), _score(row, path), None)
        for row in rows
    ]


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None
