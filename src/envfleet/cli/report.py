"""`envfleet report`: runs as one HTML file to send to somebody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from envfleet.cli.parsing import parse
from envfleet.cli.runs import chosen_runs


@dataclass(frozen=True)
class _Options:
    """Write one HTML file about one run or several: results, curves, scenarios, films and settings.

    Everything is in the file. Runs that differ only in their seed become one line with a band.

    Attributes:
        runs: the runs' folders. A folder of runs means the newest in it, latest the newest in runs/, and the folder of
            a training with --seeds all its seeds.
        output: the file to write. The default is report.html, in the folder of a single run, or in the working
            directory for several runs.
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...", help_behavior_hint="(required)")]
    output: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(_Options, "report", argv)
    from envfleet.train.sharing.report import write_report

    print(write_report(chosen_runs(options.runs), options.output))
    return 0
