"""Sides that take turns at the same loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias

from harness.report import table

ENV_ID = "LunarLander-v3"

Turn: TypeAlias = Callable[[], int]
Sides: TypeAlias = Mapping[str, Callable[[int], Any]]
Loops: TypeAlias = Mapping[str, Callable[[Any], Turn]]


@dataclass
class Result:
    """Steps per second of each turn, by side."""

    library: str
    what: str
    baseline: str
    speeds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, side: str) -> float:
        """The median over the turns of how much faster than the baseline the side was."""
        return median(mine / other for mine, other in zip(self.speeds[side], self.speeds[self.baseline], strict=True))

    def text(self) -> str:
        """As a table."""
        rows = [
            [side, f"{median(speeds):,.0f}", f"{min(speeds):,.0f} to {max(speeds):,.0f}", f"{self.ratio(side):.2f}"]
            for side, speeds in self.speeds.items()
        ]
        return table([f"{self.library}: {self.what}", "steps/s", "turns", f"/ {self.baseline}"], rows)


def measure(result: Result, sides: Sides, prepare: Callable[[Any], Turn], num_envs: int, turns: int) -> None:
    """Let all sides take turns; the first turn of each is not counted."""
    made = {side: make(num_envs) for side, make in sides.items()}
    ready = {side: prepare(envs) for side, envs in made.items()}
    result.speeds = {side: [] for side in sides}
    for number in range(turns + 1):
        for side, turn in ready.items():
            begun = time.perf_counter()
            steps = turn()
            if number:
                result.speeds[side].append(steps / (time.perf_counter() - begun))
    for envs in made.values():
        envs.close()
