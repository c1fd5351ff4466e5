"""How our figures look: a style for print that neither depends on the user's matplotlib settings nor changes them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envfleet._optional import require
from envfleet.train.atomic_files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's: they stay apart for colour-blind readers, and in grey."""

DASHES = ("-", "--", ":", "-.")
GREY = "0.35"
_STYLE = {
    "agg.path.chunksize": 10000,
    "axes.grid": True,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "figure.constrained_layout.wspace": 0.05,
    "figure.titlesize": 8,
    "font.size": 8,
    "grid.color": "0.92",
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.title_fontsize": 8,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
    "svg.hashsalt": "envfleet",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
}


def columns_of(panels: int) -> int:
    """In how many columns panels stand: up to three, four where that leaves fewer gaps."""
    return 4 if panels in (4, 7, 8, 10, 11) else min(3, panels)


def check_format(path: Path) -> None:
    """Refuses a path that does not end in .png, .pdf or .svg."""
    if path.suffix.lower() not in (".pdf", ".png", ".svg"):
        raise ValueError(f"a plot's path must end in .png, .pdf or .svg, got {os.fspath(path)!r}.")


@contextmanager
def saved_figure(path: Path, panels: int, sharey: bool = False) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yields a figure with its panels in rows, and saves it when the block ends well."""
    matplotlib = require("matplotlib", "train")
    figure_module = require("matplotlib.figure", "train")
    columns = columns_of(panels)
    rows = math.ceil(panels / columns)
    size = (max(4.2, 2.4 * columns if columns > 3 else 7.2 * (columns > 1)), 0.7 + 1.9 * rows)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure: Figure = figure_module.Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
        for spare in grid.flat[panels:]:
            spare.remove()
        yield figure, list(grid.flat[:panels])
        # Without dates, equal curves give equal files.
        undated: dict[str, Any] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
        with replacing(path) as temporary:
            figure.savefig(temporary, metadata=undated.get(path.suffix.lower()))


def thousands(largest: float) -> Callable[[float, Any], str]:
    """Prints numbers as 0.5M or 20k, in the unit that fits the largest of an axis."""
    size, letter = next((unit for unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if largest >= unit[0]), (1.0, ""))
    return lambda value, _: "0" if value == 0 else f"{value / size:.4g}{letter}"


def literal(text: str) -> str:
    """Text for matplotlib, which would set a formula between two dollar signs."""
    return text.replace("$", r"\$")
