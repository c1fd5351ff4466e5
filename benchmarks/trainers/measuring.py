"""Sides that take turns at the same loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from harness.gains import Result

ENV_ID = "LunarLander-v3"

Turn: TypeAlias = Callable[[], int]
Sides: TypeAlias = Mapping[str, Callable[[int], Any]]
Loops: TypeAlias = Mapping[str, Callable[[Any], Turn]]


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
