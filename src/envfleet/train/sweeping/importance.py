"""A picture of what mattered in a sweep: the importance of each setting, and the returns over the first of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from envfleet.randomize import LogUniform
from envfleet.train.judging.figures import COLOURS, GREY, check_format, columns_of, literal, saved_figure
from envfleet.train.judging.inline import PictureFile
from envfleet.train.sweeping.folder import SweepFolder
from envfleet.train.sweeping.results import SweepResult, SweepTrial, read_sweep, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IMPORTANCE_FILE = "importance.png"
"""What `plot_importance` writes unless told otherwise, in the sweep's folder."""

_CAPTION = "Filled: ran to its end. Open: pruned, that is ended early. Orange: the best."
_PANELS = 5
_SIDE_BY_SIDE = 6


def plot_importance(sweep_dir: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Draws how much each setting mattered in a sweep, and the returns of all trials over the most important ones.

    Importance is PED-ANOVA's, as Optuna computes it: how far the settings of the best trials differ from those of all
    that ran to their end.

    Args:
        sweep_dir: The sweep's folder; the sweep may still be under way.
        path: Where to: .png, or .pdf and .svg for print. By default importance.png in the sweep's folder.

    Returns:
        The path written to; in a notebook it is shown as the picture.
    """
    target = Path(path or Path(sweep_dir) / IMPORTANCE_FILE)
    check_format(target)
    found = read_sweep(sweep_dir)
    if not found.importance:
        raise ValueError(
            f"nothing to draw: {len(found.ranking)} trials of {found.sweep_dir} have run to their end, which is too "
            "few to tell what mattered. Go on with the sweep: envfleet sweep --resume SWEEP --trials MORE."
        )
    chosen = list(found.importance)[:_PANELS]
    search = SweepFolder(Path(sweep_dir)).read().search
    with saved_figure(target, 1 + len(chosen)) as (figure, axes):
        _draw_bars(axes[0], found)
        for name, axis in zip(chosen, axes[1:], strict=True):
            _draw_returns(axis, found, name, logarithmic=isinstance(search[name], LogUniform))
        for place, axis in enumerate(axes):
            if place and (place % columns_of(len(axes)) == 0 or place == 1):
                axis.set_ylabel("evaluation return")
        figure.suptitle(literal(f"{found.config.algo.upper()} on {found.config.env_id}, {found.counts()}"))
        figure.supxlabel(_CAPTION, fontsize=7, color=GREY)
    return PictureFile(target)


def _draw_bars(axis: Axes, found: SweepResult) -> None:
    names = list(found.importance)
    axis.barh(range(len(names)), [found.importance[name] for name in names], color=COLOURS[0], height=0.6)
    axis.set_yticks(range(len(names)), [literal(name) for name in names])
    axis.invert_yaxis()
    axis.grid(False, axis="y")
    axis.set_axisbelow(True)
    axis.set_xlabel("importance (share)")


def _draw_returns(axis: Axes, found: SweepResult, name: str, *, logarithmic: bool) -> None:
    trials = [trial for trial in found.trials if trial.value is not None and name in trial.settings]
    values = [trial.settings[name] for trial in trials]
    places, labels = _places(values)
    for trial, place in zip(trials, places, strict=True):
        _draw_trial(axis, trial, place, best=trial == found.best)
    if labels:
        axis.set_xticks(range(len(labels)), [literal(label) for label in labels])
        axis.set_xlim(-0.5, len(labels) - 0.5)
    elif logarithmic:
        axis.set_xscale("log")
    returns = np.array([trial.value for trial in trials if trial.state == "complete"], np.float64)
    margin = 0.08 * float(np.ptp(returns)) or 1.0
    # Trials that were ended early may lie far below, where how far says nothing: they leave the panel.
    lowest = min(float(returns.min()), float(np.percentile([trial.value or 0.0 for trial in trials], 5)))
    axis.set_ylim(lowest - margin, float(returns.max()) + margin)
    axis.set_xlabel(literal(name))


def _draw_trial(axis: Axes, trial: SweepTrial, place: float, *, best: bool) -> None:
    colour = COLOURS[1] if best else COLOURS[0]
    fill = colour if trial.state == "complete" else "none"
    above = 3 if best else 2
    axis.scatter([place], [trial.value or 0.0], 12, facecolors=fill, edgecolors=colour, linewidths=0.8, zorder=above)


def _places(values: Sequence[Any]) -> tuple[list[float], list[str]]:
    """Where values stand on an axis, and its labels: many numbers where they belong, anything else side by side."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    try:
        kinds = sorted(set(values))
    except TypeError:  # of different types
        kinds = sorted(set(values), key=str)
    if numbers and len(kinds) > _SIDE_BY_SIDE:
        return [float(value) for value in values], []
    return [float(kinds.index(value)) for value in values], [shown(value) for value in kinds]
