"""Brax: ids such as ``brax:ant``, and environments with Brax's ``reset(key)`` and ``step(state, action)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from envfleet.device.brax_interface import BraxInterfaceEnv
from envfleet.device.families import refuse_unknown_id
from envfleet.device.functional import FunctionalEnv, Values, refuse_unknown, shared_out

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

_FPS = 30


def adapted(what: Any, env_kwargs: Mapping[str, Any]) -> FunctionalEnv:
    """An id, an environment, or a class."""
    if not isinstance(what, str | type):
        refuse_unknown(env_kwargs, (), type(what).__name__)
        return _named(what, type(what).__name__)
    if isinstance(what, str):
        refuse_unknown_id(what, list(brax_envs._envs), "Brax")
    make = brax_envs._envs[what] if isinstance(what, str) else what
    name = what if isinstance(what, str) else what.__name__
    arguments, _ = shared_out(make, env_kwargs, (), name)
    return _named(make(**arguments), name)


def _named(env: Any, name: str) -> FunctionalEnv:
    return BraxEnv(env, f"brax:{name}", _EPISODE_LENGTH, _FPS)


@final
class BraxEnv(BraxInterfaceEnv):
    """An environment of Brax."""

    def render(self, state: Any, values: Values) -> Any:  # noqa: ARG002
        """By Brax's own renderer, which is MuJoCo's."""
        from brax.io import image

        return image.render_array(self._env.sys, state.pipeline_state)
