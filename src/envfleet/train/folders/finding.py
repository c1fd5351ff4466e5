"""Finds the run that a path means: the folder itself, or the newest run in a folder of runs. Does not need torch."""

from __future__ import annotations

import json
import os
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


def find_run(path: str | os.PathLike[str]) -> Path:
    """Return the folder of the run that `path` means.

    Args:
        path: A run's folder; or a folder with runs in it, which means the newest of them: the one that was begun or
            trained last; or "latest", which means the newest below `runs/`.
    """
    given = Path(path)
    if (given / "config.json").exists() or (given / "checkpoint").exists():
        return given
    if (given / SEEDS_FILE).exists():
        runs = sorted(entry.parent.name for entry in given.glob("*/config.json"))
        raise ValueError(f"{given} holds several runs, one per seed: give one of {', '.join(runs) or 'them'}.")
    is_latest = str(given) == LATEST and not given.exists()
    parent = RUNS if is_latest else given
    found = sorted(((_last_written(run), run) for run in runs_below(parent)), reverse=True)
    if not found:
        raise FileNotFoundError(_nothing_at(given, is_latest=is_latest))
    if len(found) > 1 and found[0][0] == found[1][0]:
        raise ValueError(f"{given} may mean {found[0][1]} or {found[1][1]}, which are equally new: give one of them.")
    return found[0][1]


def _nothing_at(path: Path, *, is_latest: bool) -> str:
    if is_latest:
        return f"there is no latest run: {RUNS.resolve()} holds none. Train one, or give its folder."
    if path.is_dir():
        return f"{path} is not the folder of a run, and there is none in it. Give the folder that training printed."
    return f"{path} does not exist. Give the folder that training printed."


def find_seeds(path: Path) -> Path | None:
    """Return the folder of several seeds that `path` means, if it means one."""
    if (path / SEEDS_FILE).exists():
        return path
    parent = find_run(path).parent if not (path / "config.json").exists() else path
    return parent if (parent / SEEDS_FILE).exists() else None


def runs_below(parent: Path) -> Iterator[Path]:
    """The folders of runs in a folder of runs, up to three levels down."""
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
