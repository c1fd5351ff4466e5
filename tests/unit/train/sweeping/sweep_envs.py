"""Environments for the tests of sweeps: one with a right and a wrong action, and one that kills its process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class TwoLevers(gymnasium.Env[Any, Any]):
    """Pays 1 for the lever that an untrained agent with seed 0 does not pull, in every of eight steps."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = 8
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        return np.ones(2, np.float32), float(action == 0), self._left == 0, False, {}


class Deadly(TwoLevers):
    """Kills its process in one of the steps, once: what it leaves behind is a file.

    Args:
        step: in which step of all the environments of a process.
        marker: the file that says that it has happened.
    """

    _steps = 0

    def __init__(self, step: int, marker: str) -> None:
        self._step, self._marker = step, Path(marker)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Deadly._steps += 1
        if Deadly._steps >= self._step and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)
