"""MuJoCo Playground: ids such as ``playground:CartpoleBalance``, environments, and classes of such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import jax

from envfleet.device.brax_interface import BraxInterfaceEnv
from envfleet.device.families import refuse_unknown_id
from envfleet.device.functional import FunctionalEnv, Values, refuse_unknown, shared_out

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
        return _named(registry.load(what, config_overrides=_settings(what, env_kwargs)), what)
    if isinstance(what, type):
        arguments, _ = shared_out(what, env_kwargs, (), what.__name__)
        return _named(what(**arguments), what.__name__)
    refuse_unknown(env_kwargs, (), type(what).__name__)
    return _named(what, type(what).__name__)


def _settings(env_id: str, env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    known = registry.get_default_config(env_id)
    refuse_unknown(env_kwargs, known.keys(), env_id)
    settings = dict(env_kwargs)
    if known.get(_IMPLEMENTATION) == "warp" and jax.default_backend() != "gpu":
        settings.setdefault(_IMPLEMENTATION, "jax")
    return settings


def _named(env: Any, name: str) -> FunctionalEnv:
    return PlaygroundEnv(env, f"playground:{name}", int(env._config.episode_length), round(1 / env.dt))


@final
class PlaygroundEnv(BraxInterfaceEnv):
    """An environment of MuJoCo Playground."""

    def render(self, state: Any, values: Values) -> Any:  # noqa: ARG002
        """By Playground's own renderer, which is MuJoCo's."""
        from mujoco_playground import render_array

        return render_array(self._env.mj_model, state, height=480, width=640)
