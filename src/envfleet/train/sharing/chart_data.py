"""Curves as plain lists, for pages that draw them: every chart has one axis and lines of the same length over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envfleet.train.judging.curves import FloatArray, Group, band, smoothed
from envfleet.train.judging.plots import PANELS, Panel
from envfleet.train.sharing.facts import Facts, Point

_MOST_POINTS = 600
"""Of a chart's axis: more than a screen shows, and a report stays small."""

_SMOOTHING = 0.02
"""Of the longest run, as for `plot_runs`."""


def curve_charts(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """One chart per metric that the runs have; a line per group, with a band where it has several runs.

    A single run has its values, faint, and their moving average; several runs only have the average.
    """
    runs = [run for group in groups for run in group.runs]
    window = _SMOOTHING * max(float(run.x[-1]) for run in runs)
    charts = (_chart(panel, groups, window) for panel in PANELS)
    return [chart for chart in charts if chart is not None]


def _chart(panel: Panel, groups: Sequence[Group], window: float) -> dict[str, Any] | None:
    bands = [band(group, panel.column, window) for group in groups]
    grids = [curve.x for curve in bands if curve is not None]
    if not grids:
        return None
    axis = _thinned(np.unique(np.concatenate(grids)))
    lines = []
    for number, (group, curve) in enumerate(zip(groups, bands, strict=True)):
        if curve is None:
            continue
        line = {"series": number, "values": _along(axis, curve.x, curve.mean)}
        if len(group.runs) > 1:
            line |= {"low": _along(axis, curve.x, curve.low), "high": _along(axis, curve.x, curve.high)}
        elif len(groups) == 1:
            run = group.runs[0]
            known = np.isfinite(smoothed(run, panel.column, window))
            line["raw"] = _along(axis, run.x[known], run.metrics[panel.column][known])
        lines.append(line)
    return {
        "name": panel.column,
        "title": panel.label,
        "fromZero": panel.from_zero,
        "mayBeLog": panel.may_be_log,
        "atLeast": panel.at_least,
        "x": _plain(axis),
        "lines": lines,
    }


def scenario_charts(named: Sequence[tuple[int, Facts]]) -> list[dict[str, Any]]:
    """One chart per parameter with several numbers for values; `named` are the runs with the numbers of their lines."""
    parameters = dict.fromkeys(point.parameter for _, facts in named for point in facts.scenarios)
    charts = (_scenario_chart(parameter, named) for parameter in parameters)
    return [chart for chart in charts if chart is not None]


def _scenario_chart(parameter: str, named: Sequence[tuple[int, Facts]]) -> dict[str, Any] | None:
    by_run = [(number, [point for point in facts.scenarios if _drawn(point, parameter)]) for number, facts in named]
    axis = sorted({float(point.value) for _, points in by_run for point in points})
    if len(axis) < 2:
        return None
    lines = []
    for number, points in by_run:
        scores = {float(point.value): point.score for point in points if point.score is not None}
        along = [scores.get(value) for value in axis]
        line = {
            "series": number,
            "values": [None if score is None else score.mean for score in along],
            "low": [None if score is None else score.mean - (score.half or 0.0) for score in along],
            "high": [None if score is None else score.mean + (score.half or 0.0) for score in along],
        }
        lines += [line] if scores else []
    return {"name": parameter, "title": f"episode return by {parameter}", "x": axis, "lines": lines, "points": True}


def _drawn(point: Point, parameter: str) -> bool:
    is_number = isinstance(point.value, (int, float)) and not isinstance(point.value, bool)
    return point.parameter == parameter and point.score is not None and is_number


def _thinned(axis: FloatArray) -> FloatArray:
    if len(axis) <= _MOST_POINTS:
        return axis
    thinned: FloatArray = axis[np.linspace(0, len(axis) - 1, _MOST_POINTS).round().astype(np.intp)]
    return thinned


def _along(axis: FloatArray, x: FloatArray, values: FloatArray) -> list[float | None]:
    return _plain(np.interp(axis, x, values, left=np.nan, right=np.nan))


def _plain(values: FloatArray) -> list[float | None]:
    """For JSON, with seven digits, which is more than a chart shows."""
    return [float(f"{value:.7g}") if np.isfinite(value) else None for value in values.tolist()]
