"""Environments that fail, for the tests of training: they crash their process, raise, and tell how episodes ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FRAGILE = "envfleet-tests/Fragile-v0"
LENGTH = 8


class FragileEnv(gymnasium.Env[Any, Any]):
    """Shows its step and its `difficulty`; ends after eight steps; is a success if it is not difficult.

    Args:
        crash_at: the step, counted over all episodes of this object, in which the process is ended; 0 for never.
        once: a file that the first crash leaves, and that prevents all others; empty for none.
        raises: raise instead.
    """

    observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, crash_at: int = 0, once: str = "", raises: bool = False) -> None:
        self._crash_at, self._once, self._raises = crash_at, once, raises
        self._step = self._taken = 0
        self.difficulty = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        self._taken += 1
        if self._taken == self._crash_at:
            self._fail()
        over = self._step == LENGTH
        info = {"is_success": self.difficulty == 0, "difficulty": self.difficulty, "words": "many"} if over else {}
        return self._observe(), 1.0 + self.difficulty, False, over, info

    def _fail(self) -> None:
        if self._once:
            try:
                Path(self._once).touch(exist_ok=False)  # who makes it is the one: two may come at the same time
            except FileExistsError:
                return
        if self._raises:
            raise RuntimeError("it broke")
        os._exit(3)

    def _observe(self) -> Any:
        return np.array([self._step, self.difficulty, self.np_random.normal()], np.float32)


gymnasium.register(FRAGILE, FragileEnv)


class FragileBoxEnv(FragileEnv):
    """The same with continuous actions."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)  # type: ignore[assignment]


gymnasium.register("envfleet-tests/FragileBox-v0", FragileBoxEnv)
