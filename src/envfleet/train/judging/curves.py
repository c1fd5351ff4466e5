"""Learning curves as numbers: which runs belong together, what tells them apart, averages over time and seeds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet.train.running.metrics import METRICS_FILE, read_metrics

FloatArray: TypeAlias = npt.NDArray[np.float64]

_NOT_COMPARED = frozenset(("name", "run_dir", "seed"))
_MOST_POINTS = 1000
"""Of an averaged curve: more than a printed page can show."""

_MOST_NAMED = 3
"""Differing hyperparameters in one label."""


@final
@dataclass(frozen=True)
class Run:
    """One run's folder.

    Attributes:
        folder: Where it lies.
        metrics: Its columns, float64[rows] each, non-finite cells as NaN; "step" is finite and grows.
        x: What its curves are drawn over, float64[rows], finite and growing.
        settings: Its hyperparameters by dotted name, as JSON text; algo and env_id among them.
        seed: As JSON text, or None without a config.json.
    """

    folder: Path
    metrics: Mapping[str, FloatArray]
    x: FloatArray
    settings: Mapping[str, str]
    seed: str | None


@final
@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed, and what tells them from the other groups."""

    label: str
    runs: tuple[Run, ...]

    @property
    def count(self) -> str:
        """How many runs, in words."""
        seeds = {run.seed for run in self.runs}
        noun = "seed" if None not in seeds and len(seeds) == len(self.runs) else "run"
        return f"{len(self.runs)} {noun}{'s' if len(self.runs) > 1 else ''}"


@final
@dataclass(frozen=True)
class Band:
    """A group's curve: mean, lowest and highest over its runs at each of `x`; float64[points] each."""

    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray


def load_run(folder: str | os.PathLike[str], *, over: str = "step") -> Run:
    """Reads a run's metrics.csv and, if there is one, its config.json; `over` is the column to draw its curves over."""
    path = Path(folder)
    metrics = read_metrics(path)
    known = np.isfinite(metrics["step"]) & np.isfinite(metrics.get(over, metrics["step"] * np.nan))
    if not known.any():
        raise ValueError(
            f'{path / METRICS_FILE} has no number in its column "{over}", so there is nothing to draw over.'
        )
    columns = {name: np.where(np.isfinite(values), values, np.nan)[known] for name, values in metrics.items()}
    settings = _settings(path / "config.json")
    seed = settings.pop("seed", None)
    compared = {name: text for name, text in settings.items() if name not in _NOT_COMPARED}
    return Run(path, columns, columns[over], compared, seed)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Puts runs together whose settings are equal but for the seed, in order of first appearance.

    A run without config.json stands alone, under its folder's name.
    """
    members: dict[Any, list[Run]] = {}
    for run in runs:
        key = tuple(sorted(run.settings.items())) or run.folder.resolve()
        members.setdefault(key, []).append(run)
    groups = [tuple(group) for group in members.values()]
    labels = _labels([group[0] for group in groups])
    return [Group(label, group) for label, group in zip(labels, groups, strict=True)]


def in_common(runs: Iterable[Run], setting: str) -> str | None:
    """The value of a setting as text to print, if all runs have it and the same one."""
    values = {run.settings.get(setting) for run in runs}
    value = values.pop()
    return None if values or value is None else _printed(value)


def moving_average(values: FloatArray, rows: int) -> FloatArray:
    """The mean of the `rows` values around each one, fewer at the ends; float64[len(values)].

    NaN counts as missing: it is left out of its neighbours' means and stays NaN itself.
    """
    kernel = np.ones(min(rows, 2 * len(values) - 1))
    known = np.isfinite(values)
    # "full", cut by hand: "same" gives the kernel's length when that is the longer one.
    start = len(kernel) // 2
    window = slice(start, start + len(values))
    sums = np.convolve(np.where(known, values, 0.0), kernel)[window]
    counts = np.convolve(known.astype(np.float64), kernel)[window]
    return np.where(known, sums / np.maximum(counts, 1.0), np.nan)


def window_rows(run: Run, window: float) -> int:
    """The odd number of rows that comes nearest to `window`, in the unit of `run.x`."""
    spacing = float(np.median(np.diff(run.x))) if len(run.x) > 1 else np.inf
    return 1 + 2 * round((window / spacing - 1) / 2) if window > spacing > 0 else 1


def smoothed(run: Run, column: str, window: float) -> FloatArray:
    """A column's moving average over about `window`, in the unit of `run.x`; float64[rows]."""
    return moving_average(run.metrics[column], window_rows(run, window))


def band(group: Group, column: str, window: float) -> Band | None:
    """The smoothed column over the group's runs, each weighing the same while it lasts; None without any value."""
    curves = []
    for run in group.runs:
        values = smoothed(run, column, window) if column in run.metrics else np.empty(0)
        known = np.isfinite(values)
        if known.any():
            curves.append((run.x[known], values[known]))
    if not curves:
        return None
    grid = _thinned(np.unique(np.concatenate([steps for steps, _ in curves])))
    rows = np.array([np.interp(grid, steps, values, left=np.nan, right=np.nan) for steps, values in curves])
    covered = np.isfinite(rows).any(axis=0)
    grid, rows = grid[covered], rows[:, covered]
    return Band(grid, np.nanmean(rows, axis=0), np.nanmin(rows, axis=0), np.nanmax(rows, axis=0))


def _thinned(grid: FloatArray) -> FloatArray:
    if len(grid) <= _MOST_POINTS:
        return grid
    chosen: npt.NDArray[np.intp] = np.linspace(0, len(grid) - 1, _MOST_POINTS).round().astype(np.intp)
    return grid[chosen]


def _settings(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        flat = {"algo": content["algo"], "custom_networks": content.get("custom_networks", False)}
        flat |= {name: content[name] for name in ("learner_class", "wrap") if name in content}
        flat.update(_flat(content["config"]))
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f'{path} is no config.json of envfleet, which holds "algo" and "config"; it was changed or damaged: '
            f"{type(error).__name__}: {error}"
        ) from error
    return {name: json.dumps(value, sort_keys=True) for name, value in flat.items()}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _labels(runs: Sequence[Run]) -> list[str]:
    """Says of each run, one a group, what the others have not."""
    kinds = [(run.settings.get("algo"), run.settings.get("env_id")) for run in runs]
    labels = []
    for run, kind in zip(runs, kinds, strict=True):
        siblings = [other for other, its in zip(runs, kinds, strict=True) if its == kind]
        labels.append(_label(run, kinds, siblings) or f"run {run.folder.resolve().name}")
    # Where even that says the same twice, the folder's name tells them apart.
    return [
        label if labels.count(label) == 1 else f"{label} ({run.folder.resolve().name})"
        for label, run in zip(labels, runs, strict=True)
    ]


def _label(run: Run, kinds: Sequence[tuple[str | None, str | None]], siblings: Sequence[Run]) -> str:
    if not run.settings:
        return ""
    alone = len(kinds) == 1
    algo = _printed(run.settings.get("algo")).upper() if alone or len({algo for algo, _ in kinds}) > 1 else ""
    env = _printed(run.settings.get("env_id")) if alone or len({env for _, env in kinds}) > 1 else ""
    names = {name for sibling in siblings for name in sibling.settings}
    differing = sorted(name for name in names if len({sibling.settings.get(name) for sibling in siblings}) > 1)
    parts = [f"{name}={_printed(run.settings.get(name))}" for name in differing[:_MOST_NAMED]]
    if len(differing) > _MOST_NAMED:
        parts.append(f"and {len(differing) - _MOST_NAMED} more")
    return ", ".join([part for part in (" on ".join(filter(None, (algo, env))), *parts) if part])


def _printed(value: str | None) -> str:
    return "unset" if value is None else value.strip('"')
