"""Finds the run that a path means: the folder itself, or the newest run in a folder of runs. Does not need torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

LATEST = "latest"
"""Stands for the newest run below `runs/`."""

RUNS = Path("runs")
"""Where training puts its folders unless told otherwise."""

SEEDS_FILE = "seeds.json"
"""Marks a folder of runs that differ in their seed alone."""

_BELOW = ("*/config.json", "*/*/config.json", "*/*/*/config.json")
"""Where runs lie in a folder of runs: runs/ENV/RUN, and one deeper for several seeds."""


def find_run(path: Path) -> Path:
    """Return the run's folder that `path` means.

    Args:
        path: A run's folder; or a folder with runs in it, which means the newest of them: the one that was begun or
            trained last; or "latest", which means the newest below `runs/`.
    """
    if (path / "config.json").exists():
        return path
    if (path / SEEDS_FILE).exists():
        runs = sorted(entry.parent.name for entry in path.glob("*/config.json"))
        raise ValueError(f"{path} holds several runs, one per seed: give one of {', '.join(runs) or 'them'}.")
    parent = RUNS if _is_latest(path) else path
    found = sorted(((_last_written(run), run) for run in _runs_below(parent)), reverse=True)
    if not found:
        return path  # whoever reads it says what is missing
    if len(found) > 1 and found[0][0] == found[1][0]:
        raise ValueError(f"{path} may mean {found[0][1]} or {found[1][1]}, which are equally new: give one of them.")
    return found[0][1]


def find_seeds(path: Path) -> Path | None:
    """Return the folder of several seeds that `path` means, if it means one."""
    if (path / SEEDS_FILE).exists():
        return path
    if (path / "config.json").exists():
        return None
    parent = find_run(path).parent
    return parent if (parent / SEEDS_FILE).exists() else None


def check_found(path: Path) -> None:
    """Refuse a path that means no run, with a sentence that says what was looked for."""
    if (path / "config.json").exists() or (path / "metrics.csv").exists():
        return
    if _is_latest(path):
        raise FileNotFoundError(f"there is no latest run: {RUNS.resolve()} holds none. Train one, or give its folder.")
    if path.is_dir() and not (path / "checkpoint").exists():
        raise FileNotFoundError(f"{path} is not the folder of a run, and there is none in it: it has no config.json.")


def _is_latest(path: Path) -> bool:
    return str(path) == LATEST and not path.exists()


def _runs_below(parent: Path) -> Iterator[Path]:
    for pattern in _BELOW:
        for file in parent.glob(pattern):
            is_best = file.parent.name == "best" and (file.parent.parent / "config.json").exists()
            if not is_best and _is_of_a_run(file):
                yield file.parent


def _is_of_a_run(file: Path) -> bool:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"format", "algo", "config"} <= content.keys()


def _last_written(run: Path) -> int:
    files = [run / "config.json", run / "metrics.csv"]
    return max(file.stat().st_mtime_ns for file in files if file.exists())
