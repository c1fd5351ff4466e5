"""`envfleet watch`: a local page that shows runs as they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from envfleet.cli.parsing import parse
from envfleet.train.folders.finding import LATEST, find_run


@dataclass(frozen=True)
class _Options:
    """Show runs on a local page: curves, speed, the fleet, restarts; buttons to save, to stop and to film.

    The page is for this machine only, and for whoever has the printed address. Needs pip install "envfleet[watch]".

    Attributes:
        runs: folders of runs, with all the runs in them, also those to come; or runs; or latest.
        port: where to listen; by default a port that is free.
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN|DIR ...", help_behavior_hint="(required)")]
    port: int = 0


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(_Options, "watch", argv)
    roots = [find_run(path) if str(path) == LATEST and not path.exists() else path for path in options.runs]
    for root in roots:
        if not root.is_dir():
            raise FileNotFoundError(f"{root} is no folder. Give the folder of a RUN, or one with runs in it.")
    from envfleet.train.watching.server import serve

    serve(roots, options.port, lambda address: print(f"live page: {address}\nCtrl-C ends it.", flush=True))
    return 0
