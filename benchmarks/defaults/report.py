"""The trials' figures as text, and what they say: is the new better, equal or worse?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.report import table

from .results import Outcome
from .trials import Case, Settings

Verdict = Literal["better", "equal", "worse"]

_T_95 = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The 97.5 % quantile of Student's t by degrees of freedom; more than 10 count as 10, which is cautious."""


@dataclass(frozen=True)
class Comparison:
    """The seeds of one case with the old settings and with the new."""

    old: tuple[float, ...]
    new: tuple[float, ...]

    @property
    def difference(self) -> float:
        """How much better the new is."""
        return statistics.mean(self.new) - statistics.mean(self.old)

    @property
    def half_interval(self) -> float:
        """Half the 95 % interval of the difference over seeds, by Welch's method."""
        old, new = (statistics.variance(values) / len(values) for values in (self.old, self.new))
        if old + new == 0:
            return 0.0
        freedom = (old + new) ** 2 / (old**2 / (len(self.old) - 1) + new**2 / (len(self.new) - 1))
        return _T_95[min(int(freedom), len(_T_95) - 1)] * math.sqrt(old + new)

    @property
    def verdict(self) -> Verdict:
        """Equal is what does not differ by more than the interval over seeds."""
        if abs(self.difference) <= self.half_interval:
            return "equal"
        return "better" if self.difference > 0 else "worse"


def comparison_of(outcomes: Sequence[Outcome]) -> Comparison | None:
    """Old against new; None while there are not two seeds of each."""
    old, new = (_returns(outcomes, settings) for settings in ("old", "new"))
    return Comparison(old, new) if min(len(old), len(new)) > 1 else None


def comparisons_text(found: Mapping[Case, Sequence[Outcome]]) -> str:
    """A line per case."""
    header = ["environment", "algorithm", "steps", "seeds", "old", "new", "difference", "95 %", "new is"]
    rows = []
    for case, outcomes in found.items():
        comparison = comparison_of(outcomes)
        if comparison is not None:
            rows.append(_row(case, comparison))
    return table(header, rows)


def seeds_text(found: Mapping[Case, Sequence[Outcome]]) -> str:
    """A line per case and settings: the mean return of every seed."""
    rows = []
    for case, outcomes in found.items():
        for settings in ("old", "new"):
            returns = _returns(outcomes, settings)
            if returns:
                rows.append([case.name, settings, ", ".join(f"{value:.2f}" for value in returns)])
    return table(["case", "settings", "mean return of each seed, in order"], rows)


def page_text(found: Mapping[Case, Sequence[Outcome]]) -> str:
    """The page that lies beside the figures."""
    parts = [
        "# Old and new defaults",
        "Written by `python benchmarks/defaults/run.py`; what it compares is explained in [the folder above]"
        "(../README.md). All figures are in [defaults.json](defaults.json).",
        comparisons_text(found),
        "`old` and `new` are means over the seeds of the mean return of 100 episodes of evaluation, without exploring. "
        "`95 %` is half the interval of the difference over seeds (Welch). `equal`: the difference is within it.",
        "## Every seed",
        seeds_text(found),
    ]
    return "\n\n".join(parts) + "\n"


def _row(case: Case, comparison: Comparison) -> list[str]:
    environment, algo = case.name.split()
    return [
        environment,
        algo.upper(),
        f"{case.steps:,}",
        f"{min(len(comparison.old), len(comparison.new))}",
        f"{statistics.mean(comparison.old):.2f}",
        f"{statistics.mean(comparison.new):.2f}",
        f"{comparison.difference:+.2f}",
        f"± {comparison.half_interval:.2f}",
        comparison.verdict,
    ]


def _returns(outcomes: Sequence[Outcome], settings: Settings) -> tuple[float, ...]:
    return tuple(run.mean_return for run in outcomes if run.settings == settings)
