"""What an evaluation found: returns and lengths, their mean with an interval, tables to print."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from envfleet.train.judging.inline import table_html

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Evaluation:
    """The episodes an agent has played in one scenario.

    Attributes:
        env_id: where.
        seed: what the environments' seeds were derived from.
        returns: the sum of rewards of each episode, environment by environment.
        lengths: the steps of each episode, likewise.
        parameters: what makes the scenario: constructor arguments, and distributions as texts.
        cut: how many episodes were cut off by a time limit that is not the environment's own.
    """

    env_id: str
    seed: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    parameters: Mapping[str, Any]
    cut: int = 0

    @property
    def episodes(self) -> int:
        """How many there are."""
        return len(self.returns)

    @property
    def mean_return(self) -> float:
        """The mean of the returns."""
        return math.fsum(self.returns) / self.episodes

    @property
    def std_return(self) -> float:
        """The standard deviation of the returns (by episodes - 1), NaN for a single episode."""
        if self.episodes < 2:
            return math.nan
        mean = self.mean_return
        return math.sqrt(math.fsum((score - mean) ** 2 for score in self.returns) / (self.episodes - 1))

    @property
    def interval_low(self) -> float:
        """The lower end of the mean's 95 % interval by Student's t, NaN for a single episode."""
        return self.mean_return - self.half_interval

    @property
    def interval_high(self) -> float:
        """The upper end."""
        return self.mean_return + self.half_interval

    @property
    def half_interval(self) -> float:
        """Half the width of that interval."""
        if self.episodes < 2:
            return math.nan
        return t_quantile((1 + _CONFIDENCE) / 2, self.episodes - 1) * self.std_return / math.sqrt(self.episodes)

    @property
    def min_return(self) -> float:
        """The worst episode's return."""
        return min(self.returns)

    @property
    def max_return(self) -> float:
        """The best episode's return."""
        return max(self.returns)

    @property
    def mean_length(self) -> float:
        """The mean of the lengths."""
        return sum(self.lengths) / self.episodes

    def _repr_html_(self) -> str:
        return _page([self])

    def to_json_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON: what is not a finite number becomes None."""
        numbers = {
            "env_id": self.env_id,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "episodes": self.episodes,
            "mean_return": self.mean_return,
            "std_return": self.std_return,
            "interval_low": self.interval_low,
            "interval_high": self.interval_high,
            "min_return": self.min_return,
            "max_return": self.max_return,
            "mean_length": self.mean_length,
            "min_length": min(self.lengths),
            "max_length": max(self.lengths),
            "cut": self.cut,
        }
        return {name: _plain(value) for name, value in numbers.items()}


@dataclass(frozen=True)
class Scenario:
    """One value of a swept parameter, and what came of it: an evaluation, or why there is none."""

    parameter: str
    value: Any
    evaluation: Evaluation | None = None
    error: str | None = None

    def to_json_dict(self) -> dict[str, Any]:
        """`parameter` and `value`, with the evaluation's numbers or else the `error`."""
        found = {"error": self.error} if self.evaluation is None else self.evaluation.to_json_dict()
        return {"parameter": self.parameter, "value": _plain(self.value), **found}

    def _repr_html_(self) -> str:
        return _page([self])


def table(rows: Sequence[Evaluation | Scenario]) -> str:
    """Evaluations as lines of text below a headline, one each; the mean return with half its 95 % interval.

    The text is for `print`. As the last line of a notebook's cell it is shown as a table.
    """
    evaluations = _evaluations(rows)
    decimals = _decimals(evaluations)
    columns = zip(_HEADLINE, *(_cells(evaluation, decimals) for evaluation in evaluations), strict=True)
    widths = [max(map(len, column)) for column in columns]
    label_width = max((len(_label(row)) for row in rows), default=0)
    lines = [_line("", _HEADLINE, label_width, widths)]
    for label, cells, refused in _table_rows(rows, decimals):
        lines.append(_line(label, cells, label_width, widths) if cells else f"{label.ljust(label_width)}  {refused}")
    note = _cut_note(evaluations)
    return _Table("\n".join([*lines, note] if note else lines), _page(rows))


@final
class _Table(str):
    """A table as text, which notebooks show as a table."""

    _page: str

    def __new__(cls, text: str, page: str = "") -> _Table:
        made = super().__new__(cls, text)
        made._page = page
        return made

    def _repr_html_(self) -> str:
        return self._page


def _page(rows: Sequence[Evaluation | Scenario]) -> str:
    """The table for a notebook."""
    evaluations = _evaluations(rows)
    found = _table_rows(rows, _decimals(evaluations))
    cells = [[label, " ".join(cells[:2]), *cells[2:]] if cells else [label, refused] for label, cells, refused in found]
    return table_html(["", "mean return", *_HEADLINE[2:]], cells, _cut_note(evaluations))


def _evaluations(rows: Sequence[Evaluation | Scenario]) -> list[Evaluation]:
    found = [row.evaluation if isinstance(row, Scenario) else row for row in rows]
    return [evaluation for evaluation in found if evaluation is not None]


def _table_rows(rows: Sequence[Evaluation | Scenario], decimals: int) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """The label of each row with its cells, or with none and why there are none."""
    for row in rows:
        evaluation = row.evaluation if isinstance(row, Scenario) else row
        if evaluation is not None:
            yield _label(row), _cells(evaluation, decimals), ""
        elif isinstance(row, Scenario):
            # An error may have many lines; in a table it has one.
            yield _label(row), (), f"refused: {' '.join(str(row.error).split())}"


def _cut_note(evaluations: Sequence[Evaluation]) -> str:
    cut = sum(evaluation.cut for evaluation in evaluations)
    return f"Cut off before they ended: {cut} episodes." if cut else ""


_HEADLINE = ("mean return", "", "worst", "best", "length", "shortest", "longest", "episodes")


def _decimals(evaluations: Sequence[Evaluation]) -> int:
    """Returns in the hundreds need fewer decimals than those between 0 and 1."""
    largest = max((abs(score) for evaluation in evaluations for score in evaluation.returns), default=0.0)
    return 1 if largest >= 10 else 3


def _cells(found: Evaluation, decimals: int) -> tuple[str, ...]:
    return (
        f"{found.mean_return:.{decimals}f}",
        "" if math.isnan(found.half_interval) else f"± {found.half_interval:.{decimals}f}",
        f"{found.min_return:.{decimals}f}",
        f"{found.max_return:.{decimals}f}",
        f"{found.mean_length:.0f}",
        f"{min(found.lengths)}",
        f"{max(found.lengths)}",
        f"{found.episodes}",
    )


def _line(label: str, cells: Sequence[str], label_width: int, widths: Sequence[int]) -> str:
    mean, half, *others = map(str.rjust, cells, widths)
    return "  ".join([label.ljust(label_width), f"{mean} {half}", *others])


def _label(row: Evaluation | Scenario) -> str:
    if isinstance(row, Scenario):
        return f"{row.parameter}={_short(row.value)}"
    return ", ".join(f"{name}={_short(value)}" for name, value in row.parameters.items()) or row.env_id


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, (bool, int, str)) else repr(value)


def t_quantile(probability: float, degrees: int) -> float:
    """The value that Student's t with `degrees` (1 or more) of freedom exceeds with 1 - `probability` (at most half).

    Up to 1,000 degrees the distribution's finite series is inverted by bisection; from there on the first term
    of its expansion around the normal distribution is exact to 1e-5.
    """
    if degrees > 1000:
        z = statistics.NormalDist().inv_cdf(probability)
        return z + (z**3 + z) / (4 * degrees)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if _t_within(middle, degrees) < 2 * probability - 1:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


def _t_within(angle: float, degrees: int) -> float:
    """The probability of |t| <= sqrt(degrees) * tan(angle), a finite sum for whole degrees of freedom."""
    odd, sine, square = degrees % 2, math.sin(angle), math.cos(angle) ** 2
    term, total = math.cos(angle) ** odd, 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= (power + 1) / (power + 2) * square
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
