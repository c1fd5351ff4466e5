"""Which run a command means by RUN."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from envfleet.train.folders.finding import SEEDS_FILE, find_run


def chosen_run(path: Path) -> Path:
    """Return the run's folder; where the newest of several was meant, say which one that is."""
    run = find_run(path)
    if run != path:
        print(f"run: {run}, the newest in {path if path.exists() else run.parent.parent}", file=sys.stderr)
    return run


def chosen_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the folders of the runs that a command with several RUNs means; a folder of seeds means all of them."""
    return [run for path in paths for run in _meant(path)]


def _meant(path: Path) -> Iterator[Path]:
    if (path / SEEDS_FILE).exists():
        yield from sorted(file.parent for file in path.glob("*/metrics.csv"))
    elif (path / "metrics.csv").exists():
        yield path
    else:
        yield chosen_run(path)
