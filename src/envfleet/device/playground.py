"""MuJoCo Playground: ids such as ``playground:CartpoleBalance``, environments, and classes of such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import jax
import numpy as np
from gymnasium.spaces import Box

from envfleet.device.families import refuse_unknown_id
from envfleet.device.functional import FunctionalEnv, Values, boundless, refuse_unknown, shared_out

try:
    from mujoco_playground import registry
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is needed for MuJoCo Playground's environments and is not installed; run\n    "
        'pip install "envfleet[jax]" playground',
        name=error.name,
    ) from error

_IMPLEMENTATION = "impl"
"""The setting that says what computes the physics: "warp" needs an NVIDIA GPU, "jax" runs everywhere."""


def adapted(what: Any, env_kwargs: Mapping[str, Any]) -> FunctionalEnv:
    """An id with settings of its configuration, an environment, or a class."""
    if isinstance(what, str):
        refuse_unknown_id(what, sorted(registry.ALL_ENVS), "MuJoCo Playground")
        return PlaygroundEnv(registry.load(what, config_overrides=_settings(what, env_kwargs)), what)
    if isinstance(what, type):
        arguments, _ = shared_out(what, env_kwargs, (), what.__name__)
        return PlaygroundEnv(what(**arguments), what.__name__)
    refuse_unknown(env_kwargs, (), type(what).__name__)
    return PlaygroundEnv(what, type(what).__name__)


def _settings(env_id: str, env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    known = registry.get_default_config(env_id)
    refuse_unknown(env_kwargs, known.keys(), env_id)
    settings = dict(env_kwargs)
    if known.get(_IMPLEMENTATION) == "warp" and jax.default_backend() != "gpu":
        settings.setdefault(_IMPLEMENTATION, "jax")
    return settings


@final
class PlaygroundEnv(FunctionalEnv):
    """An environment of MuJoCo Playground without its wrappers: time limits and resets are the fleet's.

    Its parameters are constants: they are part of its model.
    """

    def __init__(self, env: Any, name: str) -> None:
        self._env, self.name = env, f"playground:{name}"
        self.values, self.defaults = {}, {}
        self.time_limit = int(env._config.episode_length)
        self.observation_space = boundless(jax.eval_shape(env.reset, jax.random.PRNGKey(0)).obs)
        self.action_space = Box(-1.0, 1.0, (env.action_size,), np.float32)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / env.dt)}

    def reset(self, key: Any, values: Values) -> tuple[Any, Any, dict[str, Any]]:  # noqa: ARG002
        """By Playground's ``reset``."""
        state = self._env.reset(key)
        return state, state.obs, {}

    def step(self, key: Any, state: Any, action: Any, values: Values) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:  # noqa: ARG002
        """By Playground's ``step``, whose random numbers come from the state; infos are its metrics."""
        after = self._env.step(state, action)
        return after, after.obs, after.reward, after.done > 0, False, dict(after.metrics)

    def render(self, state: Any, values: Values) -> Any:  # noqa: ARG002
        """By Playground's own renderer, which is MuJoCo's."""
        from mujoco_playground import render_array

        return render_array(self._env.mj_model, state, height=480, width=640)
