"""Which run a command means by RUN."""

from __future__ import annotations

import sys
from pathlib import Path

from envfleet.train.folders.finding import find_run


def chosen_run(path: Path) -> Path:
    """Return the run's folder; where the newest of several was meant, say which one that is."""
    run = find_run(path)
    if run != path:
        print(f"run: {run}, the newest in {path if path.exists() else run.parent.parent}", file=sys.stderr)
    return run
