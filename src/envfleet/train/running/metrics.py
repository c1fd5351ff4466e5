"""The metrics of a training run: gathered over a log interval, then written to metrics.csv as one row.

The first line names the columns. A cell is empty where there is nothing to say, such as the return of an
interval in which no episode ended. Numbers are written in full, so that equal runs give equal files.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from envfleet.train.atomic_files import replacing
from envfleet.train.running.loggers.log_writer import LogWriter, Row

METRICS_FILE = "metrics.csv"
"""The file's name within a run's folder."""


@final
class MetricsWriter(LogWriter):
    """Appends rows to a metrics.csv, each of them readable as soon as it is written.

    "step" has to grow from row to row.

    Args:
        path: The file. Without `resume_at_step` there must be none yet.
        resume_at_step: Goes on with an earlier run's file: rows beyond this step are cut off, as is a last line
            that was not finished when the run was killed. If the file is gone, a new one is begun.
    """

    def __init__(self, path: str | os.PathLike[str], resume_at_step: int | None = None) -> None:
        self._path = Path(path)
        self._columns: tuple[str, ...] = ()
        self._last_step = -math.inf
        if resume_at_step is not None:
            self._columns = _cut_back(self._path, resume_at_step)
            self._last_step = resume_at_step
        try:
            self._file = self._path.open("x" if resume_at_step is None else "a", encoding="utf-8", newline="")
        except FileExistsError as error:
            raise FileExistsError(
                f"{self._path} holds an earlier run's metrics, which a new run would overwrite; resume that run, "
                "or train in another folder."
            ) from error

    def write(self, row: Row) -> None:
        """Appends one row.

        Numbers may be Python's, NumPy's or tensors of one element; None and NaN become an empty cell, and so does what
        a row lacks. A column that comes later than the first row is empty in the rows before.
        """
        new = tuple(name for name in row if name not in self._columns)
        columns = (*self._columns, *_checked_names(new))
        if "step" not in row:
            raise ValueError(f'a row of metrics needs a "step", the environment steps so far; got {list(row)}.')
        cells = [_cell(name, row.get(name)) for name in columns]
        step = _step(row["step"], self._last_step)
        if new:
            self._add_columns(new)
        self._file.write(",".join(cells) + "\n")
        self._file.flush()
        self._columns, self._last_step = columns, step

    def _add_columns(self, new: Sequence[str]) -> None:
        header, *rows = _finished_lines(self._path) or [""]
        lines = [",".join([*filter(None, [header]), *new]), *(row + "," * len(new) for row in rows), ""]
        self._file.close()
        with replacing(self._path) as temporary:
            temporary.write_text("\n".join(lines), encoding="utf-8", newline="\n")
        self._file = self._path.open("a", encoding="utf-8", newline="")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_metrics(run_dir: str | os.PathLike[str]) -> dict[str, npt.NDArray[np.float64]]:
    """Reads a run's metrics.csv, also while the run still goes on.

    Returns:
        The columns by name in the file's order, each float64[rows]; an empty cell is NaN.
    """
    path = Path(run_dir) / METRICS_FILE
    try:
        lines = _finished_lines(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{path} does not exist; a folder that training has written to was expected, got {os.fspath(run_dir)!r}."
        ) from error
    if len(lines) < 2:
        raise ValueError(f"{path} has no rows; the run ended, or is still, before its first log interval.")
    columns = _header(path, lines[0])
    rows = [[_number(path, place, cell) for cell in cells] for place, cells in _rows(path, columns, lines)]
    return dict(zip(columns, np.array(rows, np.float64).T.copy(), strict=True))


def _cut_back(path: Path, step: int) -> tuple[str, ...]:
    """Removes the rows beyond `step`; returns the columns, none if the file is missing or was hardly begun."""
    lines = _finished_lines(path) if path.exists() else []
    if not lines:
        path.unlink(missing_ok=True)
        return ()
    columns = _header(path, lines[0])
    at = columns.index("step")
    rows = list(_rows(path, columns, lines))
    kept = [",".join(cells) for place, cells in rows if _number(path, place, cells[at]) <= step]
    with replacing(path) as temporary:
        temporary.write_text("\n".join([lines[0], *kept, ""]), encoding="utf-8", newline="\n")
    return columns


def _finished_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no metrics.csv of envfleet: it is not text.") from error
    # What follows the last newline is a row in the middle of being written.
    return text.split("\n")[:-1]


def _header(path: Path, line: str) -> tuple[str, ...]:
    columns = tuple(line.split(","))
    if "step" not in columns or len(set(columns)) < len(columns):
        raise ValueError(
            f"{path} is no metrics.csv of envfleet: its first line must name the columns, each once, one of them "
            f'"step"; it is {line[:200]!r}.'
        )
    return columns


def _rows(path: Path, columns: Sequence[str], lines: Sequence[str]) -> list[tuple[int, list[str]]]:
    rows = [(place, line.split(",")) for place, line in enumerate(lines[1:], start=2)]
    for place, cells in rows:
        if len(cells) != len(columns):
            raise ValueError(
                f"{path}, line {place}: expected {len(columns)} cells, one per column, got {len(cells)}; the file is "
                "damaged or not envfleet's. Without that line it can be read again."
            )
    return rows


def _number(path: Path, place: int, cell: str) -> float:
    try:
        return float(cell) if cell else math.nan
    except ValueError:
        raise ValueError(
            f"{path}, line {place}: expected a number or an empty cell, got {cell[:50]!r}; the file is damaged or "
            "not envfleet's. Without that line it can be read again."
        ) from None


def _checked_names(columns: tuple[Any, ...]) -> tuple[str, ...]:
    for name in columns:
        if not isinstance(name, str) or not name or set(name) & set(',"\r\n'):
            raise ValueError(f"a column's name must be text without commas, quotes and line breaks, got {name!r}.")
    return columns


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, numbers.Integral):
        return str(int(value))
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"metrics are numbers or None, got {name}={value!r}.") from None
    return "" if math.isnan(number) else repr(number)


def _step(step: Any, last: float) -> float:
    if step is None or not last < step < math.inf:
        since = "a number" if last == -math.inf else f"more than the {last:g} of the row before or the checkpoint"
        raise ValueError(f'"step" has to be {since}, got {step!r}.')
    return float(step)


@final
class LogInterval:
    """Gathers the metrics of several updates, and the episodes that ended meanwhile, until they become one row."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._episodes: list[tuple[float, int]] = []
        self.steps = 0
        self.restarts = 0
        """Steps in which an environment was restarted instead: they count for when to log, and for nothing else."""
        self.seconds = 0.0

    def add(
        self, steps: int, seconds: float, metrics: Mapping[str, float], episodes: Iterable[tuple[float, int]]
    ) -> None:
        """Counts one update.

        Args:
            steps: environment steps it learnt from.
            seconds: the time it took.
            metrics: what it reported; what is not a number is named but not averaged.
            episodes: the return and the length of each episode that ended.
        """
        for name, value in metrics.items():
            known = not math.isnan(value)
            self._sums[name] = self._sums.get(name, 0.0) + (value if known else 0.0)
            self._counts[name] = self._counts.get(name, 0) + known
        self._episodes.extend(episodes)
        self.steps += steps
        self.seconds += seconds

    def note(self, name: str, value: float) -> None:
        """Counts one value of a metric that does not come with every update; NaN names it and counts nothing."""
        self.add(0, 0.0, {name: value}, ())

    def row(self) -> dict[str, float | None]:
        """Means of all that was gathered; None where there is nothing to average."""
        returns = [episode_return for episode_return, _ in self._episodes]
        lengths = [length for _, length in self._episodes]
        return {
            "steps_per_second": self.steps / self.seconds if self.seconds > 0 else None,
            "episode_return": _mean(sum(returns), len(returns)),
            "episode_length": _mean(sum(lengths), len(lengths)),
            **{name: _mean(total, self._counts[name]) for name, total in self._sums.items()},
        }

    def state(self) -> dict[str, Any]:
        """What is needed to go on, as JSON holds it."""
        return {
            "sums": self._sums,
            "counts": self._counts,
            "episodes": [list(episode) for episode in self._episodes],
            "steps": self.steps,
            "restarts": self.restarts,
            "seconds": self.seconds,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LogInterval:
        """An interval that goes on from what `state()` gave."""
        interval = cls()
        interval._sums = dict(state["sums"])
        interval._counts = dict(state["counts"])
        interval._episodes = [(pair[0], pair[1]) for pair in state["episodes"]]
        interval.steps, interval.seconds = state["steps"], state["seconds"]
        interval.restarts = state.get("restarts", 0)  # earlier versions wrote none
        return interval


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None
