"""Pictures of training and evaluation, drawn for print.

Drawing leaves matplotlib as it was: no window is opened, no pyplot figure made, and one's own style neither
matters nor changes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, final

import numpy as np

from envfleet._names import did_you_mean
from envfleet.train.judging.curves import (
    FloatArray,
    Group,
    Run,
    band,
    group_runs,
    in_common,
    load_run,
    smoothed,
    window_rows,
)
from envfleet.train.judging.figures import (
    COLOURS,
    DASHES,
    GREY,
    check_format,
    columns_of,
    literal,
    saved_figure,
    thousands,
)
from envfleet.train.judging.inline import PictureFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES_FILE = "curves.png"
"""What `plot_runs` writes unless told otherwise."""


@final
@dataclass(frozen=True)
class Panel:
    """How a metric is drawn."""

    column: str
    label: str
    from_zero: bool = False
    may_be_log: bool = False
    at_least: float | None = None
    """The lowest value worth showing: explained variance may begin far below 0, where its size means nothing."""


PANELS = (
    Panel("episode_return", "episode return"),
    Panel("eval_return", "evaluation return"),
    Panel("is_success", "success rate"),
    Panel("episode_length", "episode length (steps)"),
    Panel("critic_loss", "critic loss", may_be_log=True),
    Panel("explained_variance", "explained variance", at_least=-1.0),
    Panel("actor_loss", "actor loss"),
    Panel("entropy", "policy entropy (nats)"),
    Panel("approx_kl", "approximate KL", from_zero=True),
    Panel("restarts", "restarts of environments", from_zero=True),
    Panel("steps_per_second", "speed (steps/s)", from_zero=True),
)
"""The metrics that are drawn, in this order; of any others only the one that is asked for."""


@final
class ScenarioRow(TypedDict):
    """One row of `plot_scenarios`: the returns of an agent where `parameter` has the given value."""

    parameter: str
    value: float
    mean_return: float
    interval_low: float
    interval_high: float
    min_return: float
    max_return: float


def plot_runs(
    run_dirs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str] | None = None,
    *,
    smoothing: float = 0.02,
    x: Literal["step", "seconds"] = "step",
    metric: str | None = None,
) -> Path:
    """Draws the learning curves of one or several runs over environment steps or seconds of training.

    One panel per metric: episode return, evaluation return, success rate, episode length, critic loss, explained
    variance, actor loss, entropy, approximate KL, restarts and speed; those that the runs do not have are left out. One
    run is drawn as its values, faint, and their moving average. Of
    several, those with equal config.json but for the seed are one curve, the mean, with a band from the lowest
    to the highest; the legend says what sets the curves apart.

    Args:
        run_dirs: Folders of runs.
        path: Where to: .png, or .pdf and .svg for print. By default curves.png, in the folder of the only run, in
            the working directory for several.
        smoothing: The moving average's window, as a share of the longest run; 0 for none.
        x: What the curves are drawn over: "step", environment steps, or "seconds" of training.
        metric: A column of metrics.csv to draw alone, such as "episode_return", in one large panel.

    Returns:
        The path written to; in a notebook it is shown as the picture.
    """
    given = [run_dirs] if isinstance(run_dirs, (str, os.PathLike)) else run_dirs
    folders = list({Path(folder).resolve(): Path(folder) for folder in given}.values())
    if not folders:
        raise ValueError("plot_runs needs at least one run's folder, got none.")
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing is a share of the run, from 0 to 1, got {smoothing!r}.")
    if x not in _X_LABELS:
        raise ValueError(f"x must be {' or '.join(map(repr, _X_LABELS))}, got {x!r}.")
    name = CURVES_FILE if metric is None else f"{metric}.png"
    target = Path(path or (folders[0] / name if len(folders) == 1 else name))
    check_format(target)
    runs = [load_run(folder, over=x) for folder in folders]
    panels = _panels(runs, metric)
    window = smoothing * max(run.x[-1] for run in runs)
    with saved_figure(target, len(panels)) as (figure, axes):
        _draw_runs(figure, dict(zip(panels, axes, strict=True)), runs, window, x)
    return PictureFile(target)


_X_LABELS = {"step": "environment steps", "seconds": "seconds of training"}


def _panels(runs: Sequence[Run], metric: str | None) -> list[Panel]:
    """What is drawn: all that the runs have, or the one metric asked for."""
    found = [panel for panel in PANELS if any(_has(run, panel.column) for run in runs)]
    if metric is not None:
        known = sorted({name for run in runs for name in run.metrics if _has(run, name)} - {"step", "seconds"})
        if metric not in known:
            hint = f"{did_you_mean(metric, known)}; there are {', '.join(known)}"
            raise ValueError(f"nothing to draw: the runs have no values of the metric {metric!r}{hint}.")
        return [panel for panel in found if panel.column == metric] or [Panel(metric, metric.replace("_", " "))]
    if not found:
        names = ", ".join(panel.column for panel in PANELS)
        raise ValueError(f"nothing to draw: the metrics.csv of {runs[0].folder} has values in none of {names}.")
    return found


def plot_scenarios(table: Sequence[ScenarioRow], path: str | os.PathLike[str], *, title: str = "") -> Path:
    """Draws how an agent's return depends on its environment's parameters, one panel per parameter.

    Args:
        table: One row per scenario: the parameter's name and value, the mean return, its 95 % interval, and the
            lowest and highest return of an episode.
        path: Where to: .png, or .pdf and .svg for print.
        title: What stands above it, such as "A2C on LunarLander-v3, 100 episodes per point".

    Returns:
        The path written to; in a notebook it is shown as the picture.
    """
    target = Path(path)
    check_format(target)
    if not table:
        raise ValueError("plot_scenarios needs at least one scenario, got none.")
    for index, row in enumerate(table):
        missing = sorted(ScenarioRow.__required_keys__ - row.keys())
        if missing:
            raise ValueError(f"row {index} of the scenarios lacks {', '.join(missing)}; it has {', '.join(row)}.")
    parameters = list(dict.fromkeys(row["parameter"] for row in table))
    with saved_figure(target, len(parameters), sharey=True) as (figure, axes):
        for parameter, axis in zip(parameters, axes, strict=True):
            rows = sorted((row for row in table if row["parameter"] == parameter), key=lambda row: row["value"])
            _draw_scenarios(axis, parameter, rows)
        for axis in axes[:: columns_of(len(axes))]:
            axis.set_ylabel("episode return")
        if title:
            figure.suptitle(literal(title))
        handles, labels = axes[0].get_legend_handles_labels()
        # The means come first, though matplotlib lists error bars last.
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=2)
    return PictureFile(target)


def _draw_runs(figure: Figure, axes: Mapping[Panel, Axes], runs: Sequence[Run], window: float, x: str) -> None:
    groups = group_runs(runs)
    for panel, axis in axes.items():
        if len(runs) == 1:
            drawn = [_draw_run(axis, runs[0], panel.column, window)]
        else:
            drawn = [_draw_group(axis, index, group, panel.column, window) for index, group in enumerate(groups)]
        _finish(axis, panel, np.concatenate(drawn))
    end = max(1.0, *(run.x[-1] for run in runs))
    for axis in axes.values():
        axis.set_xlim(0, end)
        axis.locator_params(axis="x", nbins=6)
        axis.xaxis.set_major_formatter(thousands(end))
    for axis in list(axes.values())[-columns_of(len(axes)) :]:
        axis.set_xlabel(_X_LABELS[x])
    figure.align_ylabels()
    _legend(figure, next(iter(axes.values())), groups)
    figure.supxlabel(_caption(groups, window, "steps" if x == "step" else "s"), fontsize=7, color=GREY)


def _draw_run(axis: Axes, run: Run, column: str, window: float) -> FloatArray:
    """Draws values and average; returns the values that the vertical axis should show."""
    values = run.metrics[column]
    known = np.isfinite(values)
    x, values, average = run.x[known], values[known], smoothed(run, column, window)[known]
    axis.plot(x, values, color=COLOURS[0], alpha=0.25, linewidth=0.6)
    axis.plot(x, average, color=COLOURS[0])
    _mark_if_single(axis, x, average, COLOURS[0])
    # A few wild values must not press the rest of the curve into a line; they leave the panel visibly.
    return np.concatenate([average, np.percentile(values, [1, 99])])


def _draw_group(axis: Axes, index: int, group: Group, column: str, window: float) -> FloatArray:
    curve = band(group, column, window)
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]
    if curve is None:
        # Keeps the group in the legend, though this panel has nothing of it.
        axis.plot([], [], color=colour, linestyle=dash)
        return np.empty(0)
    axis.plot(curve.x, curve.mean, color=colour, linestyle=dash)
    _mark_if_single(axis, curve.x, curve.mean, colour)
    if len(group.runs) > 1:
        axis.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    return np.concatenate([curve.low, curve.high])


def _mark_if_single(axis: Axes, steps: FloatArray, values: FloatArray, colour: str) -> None:
    # A line through one point is no line; it may lie on the panel's edge, where it would be cut in half.
    if len(steps) == 1:
        axis.scatter(steps, values, s=9, color=colour, clip_on=False, zorder=3)


def _finish(axis: Axes, panel: Panel, shown: FloatArray) -> None:
    axis.set_ylabel(literal(panel.label))
    low, high = float(shown.min()), float(shown.max())
    if panel.at_least is not None and high > panel.at_least:
        low = max(low, panel.at_least)
    if panel.may_be_log and low > 0 and high / low > 100:
        axis.set_yscale("log")
        axis.set_ylim(low / 1.3, high * 1.3)
        return
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axis.set_ylim(0 if panel.from_zero else low - margin, high + margin)
    if high >= 10_000:
        axis.yaxis.set_major_formatter(thousands(high))


def _legend(figure: Figure, axis: Axes, groups: Sequence[Group]) -> None:
    runs = [run for group in groups for run in group.runs]
    if len(groups) == 1:
        number = f", {groups[0].count}" if len(runs) > 1 else f", seed {runs[0].seed}" if runs[0].seed else ""
        figure.suptitle(literal(groups[0].label + number))
        return
    algo, env = in_common(runs, "algo"), in_common(runs, "env_id")
    labels = [literal(f"{group.label} ({group.count})") for group in groups]
    columns = max(1, min(len(labels), 110 // max(map(len, labels))))
    figure.legend(
        [axis.get_lines()[index] for index in range(len(groups))],
        labels,
        title=" on ".join(filter(None, (algo and algo.upper(), env))) or None,
        loc="outside upper center",
        ncols=columns,
    )
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.17 * math.ceil(len(labels) / columns))


def _caption(groups: Sequence[Group], window: float, unit: str) -> str:
    runs = [run for group in groups for run in group.runs]
    averaged = any(window_rows(run, window) > 1 for run in runs)
    rounded = float(f"{window:.2g}")
    average = f"moving average over {thousands(rounded)(rounded, 0)} {unit}" if averaged else "values as logged"
    if len(runs) == 1:
        return f"Faint: values as logged. Bold: {average}." if averaged else "Values as logged."
    if len(groups) == len(runs):
        return f"Lines: {average}."
    text = f"Line: mean over seeds of the {average}. Band: lowest to highest seed."
    ends = [{run.x[-1] for run in group.runs} for group in groups]
    return text if all(len(end) == 1 for end in ends) else f"{text} Runs that ended early count up to their end."


def _draw_scenarios(axis: Axes, parameter: str, rows: Sequence[ScenarioRow]) -> None:
    def column(name: str) -> FloatArray:
        return np.array([row[name] for row in rows], np.float64)  # type: ignore[literal-required]

    values, means = column("value"), column("mean_return")
    # Rounding may put an empty interval's end on the wrong side of the mean, which matplotlib refuses.
    spread = np.maximum([means - column("interval_low"), column("interval_high") - means], 0.0)
    axis.plot(values, means, color=COLOURS[0], alpha=0.35, linewidth=0.8)
    interval = "mean and its 95 % interval"
    axis.errorbar(values, means, spread, fmt="o", color=COLOURS[0], markersize=3.5, capsize=2, label=interval)
    axis.plot(values, column("min_return"), "_", color=COLOURS[0], alpha=0.45, label="lowest and highest episode")
    axis.plot(values, column("max_return"), "_", color=COLOURS[0], alpha=0.45)
    axis.locator_params(axis="x", nbins=6)
    axis.set_xlabel(literal(parameter))


def _has(run: Run, column: str) -> bool:
    return column in run.metrics and bool(np.isfinite(run.metrics[column]).any())
