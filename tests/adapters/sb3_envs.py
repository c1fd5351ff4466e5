"""Environments for the tests of Stable-Baselines3's adapter, and comparisons with its own vector environments."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Recorder(gymnasium.Env[Any, Any]):
    """Dict observations, MultiBinary actions, infos of all kinds that some steps have and some do not."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = spaces.Dict({"position": spaces.Box(-9, 9, (2,), np.float32), "lamp": spaces.Discrete(3)})
    action_space = spaces.MultiBinary(2)

    def __init__(self, length: int = 5, render_mode: str | None = None) -> None:
        self.length, self.render_mode = length, render_mode
        self.options: Any = None
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.options = options
        self.seeds.append(seed)
        self.steps = 0
        return self._observation(), {"begun": True, "first": float(self.np_random.random())}

    def _observation(self) -> dict[str, Any]:
        position = self.np_random.normal(size=2).astype(np.float32)
        return {"lamp": int(self.np_random.integers(3)), "position": position}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        info: dict[str, Any] = {"steps": self.steps, "small": np.float32(self.steps / 3), "pair": np.arange(2) * 1.5}
        if self.steps % 2:
            info |= {"word": "odd", "nested": {"half": self.steps / 2, "deep": {"flag": True}}}
        ends = self.steps >= self.length + int(self.np_random.integers(2))
        terminated = ends and self.steps % 2 == 0
        return self._observation(), float(np.sum(action)) / 3, bool(terminated), ends and not terminated, info

    def render(self) -> Any:
        return np.full((4, 6, 3), self.steps, np.uint8)

    def action_masks(self) -> Any:
        return np.array([True, True, self.steps % 2 == 0, True])

    def add(self, left: int, right: int = 1) -> int:
        return left + right


class Masked(Recorder):
    """Four actions, of which the third is forbidden after every second step."""

    action_space = spaces.Discrete(4)  # type: ignore[assignment]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_masks()[action]
        return super().step(np.asarray(action))


class Brittle(gymnasium.Env[Any, Any]):
    """Ends its process at the third step."""

    observation_space = spaces.Box(-9, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if action == 1:
            os._exit(1)
        return np.full(1, self.steps, np.float32), 0.0, False, False, {}


def assert_like(ours: Any, theirs: Any, place: str = "") -> None:
    """Equal in structure, order of keys, dtypes and every value but the wall time ``t`` of episodes.

    An int may have become a float, as it does where another environment returns a float under the same key.
    """
    if isinstance(theirs, dict):
        assert isinstance(ours, dict), place
        assert list(ours) == list(theirs), place
        for key in theirs:
            if (key, place[-7:]) != ("t", "episode"):
                assert_like(ours[key], theirs[key], f"{place}/{key}")
    elif isinstance(theirs, list | tuple):
        assert isinstance(ours, type(theirs)), place
        assert len(ours) == len(theirs), place
        for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            assert_like(our, their, f"{place}/{index}")
    else:
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype or (type(ours), type(theirs)) == (float, int), place
        np.testing.assert_array_equal(ours, theirs, place)
