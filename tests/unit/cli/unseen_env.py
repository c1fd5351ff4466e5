"""An environment that worker processes can import without all that the tests of the command line import."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Unseen(gymnasium.Env[Any, Any]):
    """Cannot be rendered. Its action is its reward."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, bonus: float = 0.0) -> None:
        self.bonus = bonus

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), float(action) + self.bonus, False, False, {}
