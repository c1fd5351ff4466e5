"""Environments of one's own for the tests: each in C and in Python, and how the C ones are built."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from envfleet import native

EXAMPLES = Path(__file__).parents[2] / "examples"
LIBRARIES = Path(__file__).parent / "libraries"
SOURCES = {"Pond": EXAMPLES / "own_environment.c", "Dice": LIBRARIES / "dice.c"}

Pond = runpy.run_path(str(EXAMPLES / "own_environment.py"))["Pond"]


@native.compile(
    observation_space=Box(np.zeros(3, np.uint8), np.array([20, 20, 255], np.uint8), (3,), np.uint8),
    action_space=MultiDiscrete([3, 4]),
    state=[("dice", int, 2), ("rolls", int), ("luck", float)],
    parameters={"sides": 6, "loaded": False, "bonus": 0.25},
    max_episode_steps=40,
)
class Dice:
    def reset(self: Any, random: Any) -> None:
        for i in range(2):
            self.dice[i] = random.integers(1, self.sides + 1)
        self.rolls = 0
        self.luck = random.random()

    def step(self: Any, action: Any, random: Any) -> tuple[float, bool]:
        if action[0] == 2 and action[1] == 3:
            raise ValueError("the dice fell off the table")
        for i in range(2):
            if action[i] != 0:
                self.dice[i] = random.integers(self.sides) + 1
        self.luck = self.luck * 0.5 + random.standard_normal()
        self.rolls += 1
        reward = float(self.dice[0] + self.dice[1]) + self.bonus * self.luck
        return reward, self.dice[0] == self.dice[1] and not self.loaded

    def observe(self: Any, observation: Any) -> None:
        observation[0], observation[1] = self.dice[0], self.dice[1]
        observation[2] = self.rolls


@native.compile(
    observation_space=Discrete(9),
    action_space=Box(-1, 1, (2, 2), np.float32),
    state=[("at", float, (2, 2)), ("lost", bool)],
    parameters={"pull": 0.3},
)
class Drift:
    """Continuous actions in two dimensions, a Discrete observation, a picture."""

    def reset(self: Any, random: Any) -> None:
        for i in range(2):
            for j in range(2):
                self.at[i, j] = random.uniform(high=0.5)
        self.lost = False

    def step(self: Any, action: Any, random: Any) -> tuple[float, bool]:
        total = 0.0
        for i in range(2):
            for j in range(2):
                self.at[i, j] += action[i, j] * 0.7 - self.pull * self.at[i, j] + random.normal(scale=0.1)
                total += abs(self.at[i, j])
        self.lost = total > 2.5
        return -total, self.lost

    def observe(self: Any, observation: Any) -> None:
        observation[0] = min(8, int(abs(self.at[0, 0] + self.at[1, 1]) * 4))

    def render(self: Any) -> Any:
        return np.full((2, 2, 3), int(abs(self.at[0, 0]) * 100) % 256, np.uint8)


COMPILED = {"Pond": Pond, "Dice": Dice, "Drift": Drift}


def build(source: Path, target: Path, *options: str) -> Path:
    """Compiles a C source into a shared library as the header says; without a compiler the test is skipped."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler: neither cc nor gcc nor clang")
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")
    command = [compiler, *strict, "-O2", "-ffp-contract=off", "-fPIC", "-shared", f"-I{native.include_dir()}", *options]
    subprocess.run([*command, str(source), "-o", str(target), "-lm"], check=True, timeout=60)
    return target
