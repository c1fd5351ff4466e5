"""Environments with Brax's interface, ``reset(key)`` and ``step(state, action)``: Brax's, and MuJoCo Playground's."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import numpy as np
from gymnasium.spaces import Box

from envfleet.device.functional import FunctionalEnv, Values, boundless


class BraxInterfaceEnv(FunctionalEnv):
    """An environment without its library's wrappers: time limits and resets are the fleet's.

    Its parameters are constants: they are part of its model.

    Args:
        env: The environment.
        name: What errors and plans call it.
        time_limit: Steps after which its library truncates its episodes.
        fps: How many steps of a film are a second.
    """

    def __init__(self, env: Any, name: str, time_limit: int, fps: int) -> None:
        self._env, self.name, self.time_limit = env, name, time_limit
        self.values, self.defaults = {}, {}
        self.observation_space = boundless(jax.eval_shape(env.reset, jax.random.PRNGKey(0)).obs)
        self.action_space = Box(-1.0, 1.0, (env.action_size,), np.float32)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps}

    def reset(self, key: Any, values: Values) -> tuple[Any, Any, dict[str, Any]]:  # noqa: ARG002
        """By its own ``reset``."""
        state = self._env.reset(key)
        return state, state.obs, {}

    def step(self, key: Any, state: Any, action: Any, values: Values) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:  # noqa: ARG002
        """By its own ``step``, whose random numbers, if any, come from the state; infos are its metrics."""
        after = self._env.step(state, action)
        return after, after.obs, after.reward, after.done > 0, False, dict(after.metrics)

    @abstractmethod
    def render(self, state: Any, values: Values) -> Any:
        """By its library's own renderer."""
