"""The studies' figures as text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.report import table

from .pictures import OVERVIEW, curves_of
from .results import SeedResult, StudyResult


def seeds_text(results: Sequence[StudyResult]) -> str:
    """One line per seed."""
    header = ["study", "seed", "mean return", "95 %", "worst", "best", "length", "bar", "met", "steps", "seconds"]
    rows = [_seed_row(result, found) for result in results for found in result.seeds]
    note = "\n\n* shared the machine with other runs, so its time says nothing." if _any_shared(results) else ""
    return table([*header, "steps/s"], rows) + note


def summary_text(results: Sequence[StudyResult]) -> str:
    """One line per study; times are medians over the seeds that ran alone."""
    header = ["study", "seeds", "mean return", "worst seed", "bar", "all met", "steps", "minutes", "steps/s"]
    return table(header, [_summary_row(result) for result in results])


def page_text(results: Sequence[StudyResult]) -> str:
    """The page that lies beside the figures: everything to read and to look at."""
    parts = [
        "# What the algorithms learn",
        "Written by `python benchmarks/learning/run.py`; what it measures is explained in [the folder above]"
        "(../README.md).",
        f"![Learning curves of all studies]({OVERVIEW})",
        summary_text(results),
        "Each seed's mean return is over 100 episodes of evaluation without exploring, with half its 95 % interval.",
        seeds_text(results),
    ]
    for result in results:
        name = result.study.name
        parts += [
            f"## {name}",
            f"[figures]({name}.json) · [curves]({name}.csv)",
            f"![Learning curves of {name}]({curves_of(result)})",
        ]
    return "\n\n".join(parts) + "\n"


def _seed_row(result: StudyResult, found: SeedResult) -> list[str]:
    shared = "*" if found.side_by_side > 1 else ""
    return [
        result.study.name,
        str(found.seed),
        f"{found.mean_return:.1f}",
        f"± {(found.interval_high - found.interval_low) / 2:.1f}",
        f"{found.min_return:.1f}",
        f"{found.max_return:.1f}",
        f"{found.mean_length:.0f}",
        f"{result.study.bar:g}",
        "yes" if found.passes else "NO",
        f"{found.steps:,}",
        f"{found.training_seconds:.0f}{shared}",
        f"{found.steps_per_second:,.0f}{shared}",
    ]


def _summary_row(result: StudyResult) -> list[str]:
    returns = [found.mean_return for found in result.seeds]
    alone = result.alone
    minutes = statistics.median(found.training_seconds for found in alone) / 60 if alone else None
    speed = statistics.median(found.steps_per_second for found in alone) if alone else None
    return [
        result.study.name,
        str(len(returns)),
        f"{statistics.mean(returns):.1f}",
        f"{min(returns):.1f}",
        f"{result.study.bar:g}",
        "yes" if result.passes else "NO",
        f"{max(found.steps for found in result.seeds):,}",
        "not timed" if minutes is None else f"{minutes:.1f}",
        "not timed" if speed is None else f"{speed:,.0f}",
    ]


def _any_shared(results: Sequence[StudyResult]) -> bool:
    return any(found.side_by_side > 1 for result in results for found in result.seeds)
