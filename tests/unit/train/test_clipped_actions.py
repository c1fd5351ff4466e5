"""A Gaussian policy on bounded actions: the environment gets them clipped, the algorithm learns from what was drawn."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from envfleet import make_vec
from envfleet.train import begin, collect
from envfleet.wrappers import BoundedAction


class Echo(gymnasium.Env[Any, Any]):
    """Shows the action it was given, between -3 and 5."""

    observation_space = Box(-10, 10, (1,), np.float32)
    action_space = Box(-3, 5, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return action, 0.0, False, False, {}


def test_the_rollout_holds_the_actions_before_clipping() -> None:
    drawn = np.array([[[0.5], [7.0]], [[-2.0], [1.0]], [[0.0], [-1.0]]], np.float32)
    with make_vec(Echo, 2, "sync") as envs:
        actions = iter(drawn)
        bounded = BoundedAction(envs)
        rollout = collect(bounded, lambda _: next(actions), 3, begin(bounded, seed=0))
    np.testing.assert_array_equal(rollout.actions, drawn)
    received = np.concatenate([rollout.observations[1:], rollout.end.observations[None]])
    np.testing.assert_array_equal(received, 1 + 4 * np.clip(drawn, -1, 1))
