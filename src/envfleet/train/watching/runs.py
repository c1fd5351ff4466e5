"""Runs as the live page shows them: read from folders that may be anybody's, so that nothing in them is believed.

Does not need torch. Nothing is executed or imported, and no file outside of the given folders is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from envfleet.train.folders.finding import runs_below
from envfleet.train.folders.locking import is_in_use
from envfleet.train.running.metrics import METRICS_FILE, read_metrics
from envfleet.train.watching.signals import LiveFolder

_MOST_RUNS = 200
_LARGEST = 32_000_000
"""Bytes of a file: what envfleet writes is far smaller."""

_SETTINGS = ("env_id", "seed", "num_envs", "total_steps")


@final
@dataclass(frozen=True)
class WatchedRun:
    """One run's folder.

    Attributes:
        key: what the page calls it.
        name: what people read: the path below the folder that was given.
        path: the folder.
        root: the folder that was given; nothing outside of it is read.
    """

    key: str
    name: str
    path: Path
    root: Path

    def file(self, *parts: str) -> Path | None:
        """A file of the run; None if it is none, is too large, or a link leads out of the folder that was given."""
        path = self.path.joinpath(*parts)
        try:
            if not path.resolve(strict=True).is_relative_to(self.root.resolve()):
                return None
            found = path.stat()
        except (OSError, RuntimeError):
            return None
        return path if stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST else None

    def read_json(self, *parts: str) -> dict[str, Any]:
        """An object of a JSON file; nothing if there is none."""
        path = self.file(*parts)
        try:
            content = {} if path is None else json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def summary(self) -> dict[str, Any]:
        """What the list of runs says."""
        config = self.read_json("config.json")
        settings = config.get("config")
        known = settings if isinstance(settings, dict) else {}
        told = {name: _plain(known.get(name)) for name in _SETTINGS}
        table = self.metrics()
        steps = table["columns"].get("step") or [0]
        running = is_in_use(self.path)
        total = told["total_steps"]
        finished = isinstance(total, (int, float)) and not running and self._ended(steps[-1] or 0, total)
        return {
            "key": self.key,
            "name": self.name,
            "algo": _plain(config.get("algo")),
            **told,
            "status": "running" if running else "finished" if finished else "stopped",
            "last": {name: _last(values) for name, values in table["columns"].items()},
            "film": next((name for name in _FILMS if self.file(*name.split("/"))), None),
            "note": table["note"],
        }

    def _ended(self, step: float, total: float) -> bool:
        # A training that finished has an evaluation or a film, or came within a rollout of its last step.
        return step >= 0.98 * total or self.file("evaluation.json") is not None

    def metrics(self) -> dict[str, Any]:
        """The columns of metrics.csv, and a note where there are none."""
        if self.file(METRICS_FILE) is None:
            return {"columns": {}, "note": "There are no metrics yet."}
        try:
            columns = read_metrics(self.path)
        except (OSError, ValueError) as error:
            return {"columns": {}, "note": " ".join(str(error).split())[:300]}
        plain = {
            name: [value if math.isfinite(value) else None for value in column.tolist()]
            for name, column in columns.items()
        }
        return {"columns": plain, "note": ""}

    def version(self) -> str:
        """Changes whenever the metrics do."""
        path = self.file(METRICS_FILE)
        if path is None:
            return "none"
        found = path.stat()
        return f"{found.st_mtime_ns:x}-{found.st_size:x}"

    def live(self) -> dict[str, Any]:
        """What the training does now, or did when it was last watched."""
        running = is_in_use(self.path)
        if running:
            LiveFolder(self.path).ask()
        return {"running": running, "state": self.read_json(".live", "state.json")}


_FILMS = (".live/film.mp4", "showcase.mp4")


@final
class Runs:
    """The runs in some folders.

    Args:
        roots: folders of runs, or runs.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots

    def all(self) -> list[WatchedRun]:
        """Those that are there now, in the order of the folders, the newest first in each."""
        found = {run.path.resolve(): run for root in self._roots for run in _runs_in(root)}
        return list(found.values())[:_MOST_RUNS]

    def find(self, key: str) -> WatchedRun | None:
        """The one that the page calls so."""
        return next((run for run in self.all() if run.key == key), None)


def _runs_in(root: Path) -> Iterator[WatchedRun]:
    if (root / "config.json").is_file() or (root / METRICS_FILE).is_file():
        yield _watched(root, root.resolve().name, root)
        return
    inside = [path for path in runs_below(root) if path.resolve().is_relative_to(root.resolve())]
    for path in sorted(inside, key=lambda run: (run / "config.json").stat().st_mtime, reverse=True):
        yield _watched(path, os.fspath(path.relative_to(root)), root)


def _watched(path: Path, name: str, root: Path) -> WatchedRun:
    key = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    return WatchedRun(key, name, path, root)


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)[:200]
