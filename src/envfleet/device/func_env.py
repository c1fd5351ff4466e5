"""Gymnasium's functional environments: ``FuncEnv``, and the ids that are made of one."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, final

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.experimental.functional import FuncEnv

from envfleet.device.functional import (
    FunctionalEnv,
    Values,
    field_names,
    field_values,
    refuse_unknown,
    replaced,
    shared_out,
)
from envfleet.errors import UnsupportedError


def adapted(what: Any, env_kwargs: Mapping[str, Any]) -> FunctionalEnv:
    """A ``FuncEnv``, a class of such, or the spec of an id that is made of one."""
    kwargs = dict(env_kwargs)
    if isinstance(what, EnvSpec):
        return _of_spec(what, kwargs)
    if not isinstance(what, type):
        return GymnasiumFuncEnv(what, kwargs)
    arguments, values = shared_out(what, kwargs, field_names(what().default_params), what.__name__)
    return GymnasiumFuncEnv(what(**arguments), values)


def _of_spec(spec: EnvSpec, env_kwargs: dict[str, Any]) -> FunctionalEnv:
    env: Any = gymnasium.make(spec, disable_env_checker=True).unwrapped
    if not isinstance(getattr(env, "func_env", None), FuncEnv):
        raise UnsupportedError(f"{spec.id}, which has no functional environment inside")
    return GymnasiumFuncEnv(env.func_env, env_kwargs, spec.id, dict(env.metadata), spec.max_episode_steps)


@final
class GymnasiumFuncEnv(FunctionalEnv):
    """A ``FuncEnv``. What is not varied stays a constant of the compiled step, as in Gymnasium's own wrapper."""

    def __init__(
        self,
        env: Any,
        values: dict[str, Any],
        name: str = "",
        metadata: dict[str, Any] | None = None,
        time_limit: int | None = None,
    ) -> None:
        self._env, self._render_state = copy(env), None
        self.name = name or type(env).__name__
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._defaults = env.get_default_params()
        self.defaults = field_values(self._defaults)
        refuse_unknown(values, self.parameters, self.name)
        self.values, self.time_limit = values, time_limit
        self.metadata = metadata or {"render_modes": ["rgb_array"], **getattr(env, "metadata", {})}

    def _given(self, values: Values) -> dict[str, Any]:
        return {"params": replaced(self._defaults, values)} if values else {}

    def reset(self, key: Any, values: Values) -> tuple[Any, Any, dict[str, Any]]:
        """As ``FunctionalJaxEnv`` puts a reset together."""
        given = self._given(values)
        state = self._env.initial(rng=key, **given)
        return state, self._env.observation(state, key, **given), self._env.state_info(state, **given)

    def step(self, key: Any, state: Any, action: Any, values: Values) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:
        """As ``FunctionalJaxEnv`` puts a step together."""
        env, given = self._env, self._given(values)
        after = env.transition(state, action, key, **given)
        reward = env.reward(state, action, after, key, **given)
        observation, terminated = env.observation(after, key, **given), env.terminal(after, key, **given)
        return after, observation, reward, terminated, False, env.transition_info(state, action, after, **given)

    def render(self, state: Any, values: Values) -> Any:
        """By the environment's own ``render_image``."""
        given = self._given(values)
        if self._render_state is None:
            self._render_state = self._env.render_init(**given)
        self._render_state, frame = self._env.render_image(state, self._render_state, **given)
        return frame

    def close(self) -> None:
        """Closes what it draws with."""
        if self._render_state is not None:
            self._env.render_close(self._render_state)
            self._render_state = None
