"""What the studies found, as files: one JSON and one CSV a study, which grow seed by seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from harness.machine import Machine

from envfleet.train import read_metrics
from envfleet.train.atomic_files import replacing

from .aggregates import interquartile_mean
from .studies import Study, episodes

ROWS_A_SEED = 120
"""Of a run's metrics: enough for a curve, and five seeds stay below 100 kB."""

_COUNTS = ("step", "episodes")
_LAST_OF_ITS_ROWS = (*_COUNTS, "seconds")


@dataclass(frozen=True)
class SeedResult:
    """One seed of a study: how well the agent plays, and what training took.

    `side_by_side` is how many runs shared the machine: only the time figures of those that ran alone (1) count.
    `training_return` is the mean over the last 100 training episodes, the others are the evaluation's.
    """

    seed: int
    passes: bool
    mean_return: float
    std_return: float
    interval_low: float
    interval_high: float
    min_return: float
    max_return: float
    mean_length: float
    episodes: int
    training_return: float | None
    steps: int
    training_seconds: float
    steps_per_second: float
    evaluation_seconds: float
    backend: str
    plan: str
    side_by_side: int
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    command: str
    machine: Machine

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> SeedResult:
        """What `asdict` gave."""
        loads = {name: tuple(plain[name]) for name in ("load_before", "load_after")}
        return cls(**{**plain, **loads, "machine": Machine(**plain["machine"])})


@dataclass(frozen=True)
class StudyResult:
    """A study with the seeds that have run so far, in order."""

    study: Study
    quick: bool
    seeds: tuple[SeedResult, ...] = ()

    @property
    def passes(self) -> bool:
        """Whether the seeds so far reach the bar: every one of them, or their interquartile mean."""
        if self.study.judged_by == "worst":
            return all(found.passes for found in self.seeds)
        within = all(found.steps <= self.study.steps_allowed for found in self.seeds)
        return within and self.iqm >= self.study.bar

    @property
    def iqm(self) -> float:
        """The interquartile mean of the seeds' returns."""
        return float(interquartile_mean(np.array([found.mean_return for found in self.seeds])))

    @property
    def alone(self) -> tuple[SeedResult, ...]:
        """The seeds whose time figures count."""
        return tuple(found for found in self.seeds if found.side_by_side == 1)

    def with_seed(self, found: SeedResult) -> StudyResult:
        """The same with one more seed, in the place of an earlier result of it."""
        others = [other for other in self.seeds if other.seed != found.seed]
        return replace(self, seeds=tuple(sorted([*others, found], key=lambda result: result.seed)))

    def as_json(self) -> dict[str, Any]:
        """Plain dicts and lists."""
        quick = " --quick" if self.quick else ""
        return {
            "study": asdict(self.study),
            "command": f"python benchmarks/learning/run.py --study {self.study.name}{quick}",
            "episodes": episodes(quick=self.quick),
            "reaches_bar": self.passes,
            "config": self.study.settings(quick=self.quick),
            "seeds": [asdict(found) for found in self.seeds],
        }


@dataclass(frozen=True)
class ResultFolder:
    """Where the studies' files lie."""

    path: Path
    quick: bool

    def json_of(self, study: Study) -> Path:
        """Figures."""
        return self.path / f"{study.name}.json"

    def csv_of(self, study: Study) -> Path:
        """Learning curves."""
        return self.path / f"{study.name}.csv"

    def read(self, study: Study) -> StudyResult:
        """What is there; seeds trained with other settings than today's do not count any more."""
        empty = StudyResult(study, self.quick)
        if not self.json_of(study).exists():
            return empty
        plain = json.loads(self.json_of(study).read_text())
        # Results from before there was a choice do not say by what a study is judged: it was its worst seed.
        same_study = {"judged_by": "worst", **plain["study"]} == asdict(study)
        if not same_study or not study.was_trained_with(plain["config"], quick=self.quick):
            return empty
        return replace(empty, seeds=tuple(map(SeedResult.from_json, plain["seeds"])))

    def add(self, study: Study, found: SeedResult, run_dir: Path) -> None:
        """Put one seed's figures and curve among those of the others."""
        result = self.read(study).with_seed(found)
        columns = read_metrics(run_dir)
        curves = self._curves_under(tuple(columns), result)
        curves[found.seed] = thinned(columns)
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self.json_of(study), json.dumps(result.as_json(), indent=2) + "\n")
        _write(self.csv_of(study), _csv(tuple(columns), curves))

    def read_curves(self, result: StudyResult) -> dict[int, list[str]]:
        """The rows of each seed's curve as they stand in the CSV, without the seed."""
        curves: dict[int, list[str]] = {found.seed: [] for found in result.seeds}
        for line in self._csv_lines(result.study)[1:]:
            seed, _, rest = line.partition(",")
            curves.get(int(seed), []).append(rest)
        return curves

    def _curves_under(self, names: tuple[str, ...], result: StudyResult) -> dict[int, list[str]]:
        """The same in other columns: those that earlier seeds did not have stay empty."""
        curves = self.read_curves(result)
        earlier = self.header(result.study).split(",") if any(curves.values()) else list(names)
        if tuple(earlier) == names:
            return curves
        rows = {seed: [dict(zip(earlier, line.split(","), strict=True)) for line in curves[seed]] for seed in curves}
        return {seed: [",".join(row.get(name, "") for name in names) for row in rows[seed]] for seed in rows}

    def header(self, study: Study) -> str:
        """The names of a curve's columns, without the seed."""
        return self._csv_lines(study)[0].partition(",")[2]

    def _csv_lines(self, study: Study) -> list[str]:
        return self.csv_of(study).read_text().splitlines() if self.csv_of(study).exists() else []


def thinned(columns: Mapping[str, np.typing.NDArray[np.float64]]) -> list[str]:
    """Metrics in at most ROWS_A_SEED lines of text: counts and seconds as they stood, all else averaged."""
    rows = len(columns["step"])
    parts = np.array_split(np.arange(rows), min(rows, ROWS_A_SEED))
    return [",".join(_cell(name, values[part]) for name, values in columns.items()) for part in parts]


def _cell(name: str, values: np.typing.NDArray[np.float64]) -> str:
    if name in _LAST_OF_ITS_ROWS:
        return f"{values[-1]:.0f}" if name in _COUNTS else f"{values[-1]:.2f}"
    known = values[np.isfinite(values)]
    return f"{known.mean():.5g}" if known.size else ""


def _csv(columns: Sequence[str], curves: Mapping[int, Iterable[str]]) -> str:
    lines = [f"{seed},{row}" for seed in sorted(curves) for row in curves[seed]]
    return "\n".join([",".join(["seed", *columns]), *lines, ""])


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text)
