"""`envfleet plot`: the learning curves of one run or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from envfleet.cli.parsing import parse


@dataclass(frozen=True)
class _Options:
    """Draw learning curves: returns, episode lengths, losses, entropy and speed over environment steps.

    Runs that differ only in their seed become one curve: their mean, with a band from the lowest to the highest.

    Attributes:
        runs: the runs' folders.
        output: the file to write: .png, or .pdf and .svg for print. The default is curves.png, in the folder of a
            single run, or in the working directory for several runs.
        smoothing: the window of the moving average, as a share of the longest run; 0 for none.
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...", help_behavior_hint="(required)")]
    output: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    smoothing: float = 0.02


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(_Options, "plot", argv)
    from envfleet.train.judging.plots import plot_runs

    print(plot_runs(options.runs, options.output, smoothing=options.smoothing))
    return 0
