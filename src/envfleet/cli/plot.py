"""`envfleet plot`: the learning curves of one run or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from envfleet.cli.parsing import parse
from envfleet.cli.runs import chosen_runs


@dataclass(frozen=True)
class _Options:
    """Draw learning curves: returns, evaluations, episode lengths, losses, entropy, speed and more.

    Runs that differ only in their seed become one curve: their mean, with a band from the lowest to the highest.

    Attributes:
        runs: the runs' folders. A folder of runs means the newest in it, latest the newest in runs/, and the folder of
            a training with --seeds all its seeds.
        output: the file to write: .png, or .pdf and .svg for print. The default is curves.png, in the folder of a
            single run, or in the working directory for several runs.
        smoothing: the window of the moving average, as a share of the longest run; 0 for none.
        x: what the curves are drawn over: environment steps, or seconds of training.
        metric: draw this metric alone, such as episode_return: a column of metrics.csv.
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...", help_behavior_hint="(required)")]
    output: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    smoothing: float = 0.02
    x: Literal["step", "seconds"] = "step"
    metric: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: all)")] = None


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(_Options, "plot", argv)
    from envfleet.train.judging.plots import plot_runs

    folders = chosen_runs(options.runs)
    smoothing = options.smoothing
    print(plot_runs(folders, options.output, smoothing=smoothing, x=options.x, metric=options.metric))
    return 0
