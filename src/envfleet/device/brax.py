"""Brax: ids such as ``brax:ant``, and environments with Brax's ``reset(key)`` and ``step(state, action)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import jax
import numpy as np
from gymnasium.spaces import Box

from envfleet.device.families import refuse_unknown_id
from envfleet.device.functional import FunctionalEnv, Values, boundless, refuse_unknown, shared_out

try:
    from brax import envs as brax_envs
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is needed for Brax's environments and is not installed; run\n    "
        'pip install "envfleet[jax]" brax',
        name=error.name,
    ) from error

_EPISODE_LENGTH = 1000
"""What ``brax.envs.create`` takes by default."""


def adapted(what: Any, env_kwargs: Mapping[str, Any]) -> FunctionalEnv:
    """An id, an environment, or a class."""
    if not isinstance(what, str | type):
        refuse_unknown(env_kwargs, (), type(what).__name__)
        return BraxEnv(what, type(what).__name__)
    if isinstance(what, str):
        refuse_unknown_id(what, list(brax_envs._envs), "Brax")
    make = brax_envs._envs[what] if isinstance(what, str) else what
    name = what if isinstance(what, str) else what.__name__
    arguments, _ = shared_out(make, env_kwargs, (), name)
    return BraxEnv(make(**arguments), name)


@final
class BraxEnv(FunctionalEnv):
    """A Brax environment without Brax's wrappers: time limits and resets are the fleet's.

    Its parameters are constants: they are part of its system.
    """

    def __init__(self, env: Any, name: str) -> None:
        self._env, self.name = env, f"brax:{name}"
        self.values, self.defaults = {}, {}
        self.time_limit = _EPISODE_LENGTH
        self.observation_space = boundless(jax.eval_shape(env.reset, jax.random.PRNGKey(0)).obs)
        self.action_space = Box(-1.0, 1.0, (env.action_size,), np.float32)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def reset(self, key: Any, values: Values) -> tuple[Any, Any, dict[str, Any]]:  # noqa: ARG002
        """By Brax's ``reset``."""
        state = self._env.reset(key)
        return state, state.obs, {}

    def step(self, key: Any, state: Any, action: Any, values: Values) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:  # noqa: ARG002
        """By Brax's ``step``, which draws nothing; infos are its metrics."""
        after = self._env.step(state, action)
        return after, after.obs, after.reward, after.done > 0, False, dict(after.metrics)

    def render(self, state: Any, values: Values) -> Any:  # noqa: ARG002
        """By Brax's own renderer, which is MuJoCo's."""
        from brax.io import image

        return image.render_array(self._env.sys, state.pipeline_state)
