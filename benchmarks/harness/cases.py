"""Contestants that do the same in one process, turn about."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Run = Callable[[int], None]
"""Takes so many steps of all environments."""


@dataclass(frozen=True)
class Case:
    """One row: two or more contestants that do the same.

    Attributes:
        name: What they do.
        num_envs: How many environments each steps.
        steps: How many steps a turn has.
        contestants: What they are called, the first being the one that the others are held against.
    """

    name: str
    num_envs: int
    steps: int
    contestants: dict[str, Run]


def measured(cases: Iterable[Case], rounds: int) -> list[dict[str, Any]]:
    """The environment steps per second of every turn: interleaved, after one that is not counted."""
    found = []
    for case in cases:
        rates: dict[str, list[float]] = {name: [] for name in case.contestants}
        for number in range(rounds + 1):
            for name, run in case.contestants.items():
                began = time.perf_counter()
                run(case.steps)
                if number:
                    rates[name].append(case.num_envs * case.steps / (time.perf_counter() - began))
        found.append({"case": case.name, "num_envs": case.num_envs, "steps": case.steps, "rates": rates})
        print(text_of_row(found[-1]), file=sys.stderr, flush=True)
    return found


def ratio_of(row: dict[str, Any], name: str) -> float:
    """The median of what a contestant makes of the first one's rate in the same round."""
    rates: dict[str, list[float]] = row["rates"]
    first, *_ = rates.values()
    return statistics.median(mine / other for mine, other in zip(rates[name], first, strict=True))


def text_of_row(row: dict[str, Any]) -> str:
    """A line for the terminal."""
    rates = "; ".join(
        f"{name} {statistics.median(each):,.0f} ({ratio_of(row, name):.2f})" for name, each in row["rates"].items()
    )
    return f"{row['case']}: {rates}"
