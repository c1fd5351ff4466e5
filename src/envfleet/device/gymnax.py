"""gymnax: its ids, its environments, and pairs of an environment and its parameters as ``gymnax.make`` gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from envfleet.device.families import refuse_unknown_id
from envfleet.device.functional import (
    FunctionalEnv,
    Values,
    field_names,
    field_values,
    refuse_unknown,
    replaced,
    shared_out,
)

try:
    import gymnax
    from gymnax.environments.spaces import gymnax_space_to_gym_space
except ModuleNotFoundError as error:  # no extra of envfleet: gymnax wants an older Gymnasium than ours
    raise ModuleNotFoundError(
        f'{error.name} is needed for gymnax\'s environments and is not installed; run\n    pip install "envfleet[jax]" '
        "gymnax six",
        name=error.name,
    ) from error


def adapted(what: Any, env_kwargs: Mapping[str, Any]) -> FunctionalEnv:
    """An id, an environment, a pair of one and its parameters, or a class."""
    kwargs = dict(env_kwargs)
    if isinstance(what, tuple):
        env, parameters = what
        return GymnaxEnv(env, parameters, kwargs)
    if isinstance(what, str | type):
        make = gymnax.registration._registry[_known(what)] if isinstance(what, str) else what
        names = field_names(make().default_params)
        arguments, kwargs = shared_out(make, kwargs, names, getattr(make, "__name__", str(what)))
        env = make(**arguments)
    else:
        env = what
    return GymnaxEnv(env, env.default_params, kwargs)


def _known(env_id: str) -> str:
    refuse_unknown_id(env_id, list(gymnax.registered_envs), "gymnax")
    return env_id


@final
class GymnaxEnv(FunctionalEnv):
    """A gymnax environment. Its resets at the end of an episode are left to the fleet.

    All its parameters are arguments of the compiled step, as in gymnax itself: as constants they would round otherwise.
    """

    time_limit = None  # is_truncated says it

    def __init__(self, env: Any, parameters: Any, values: dict[str, Any]) -> None:
        self._env, self._defaults = env, parameters
        self.name, self.defaults = f"gymnax:{env.name}", field_values(parameters)
        refuse_unknown(values, self.parameters, self.name)
        self.values = {**self.defaults, **values}
        self._parameters = replaced(parameters, values)
        self.observation_space = gymnax_space_to_gym_space(env.observation_space(self._parameters))
        self.action_space = gymnax_space_to_gym_space(env.action_space(self._parameters))
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def reset(self, key: Any, values: Values) -> tuple[Any, Any, dict[str, Any]]:
        """By ``reset_env``."""
        observation, state = self._env.reset_env(key, replaced(self._defaults, values))
        return state, observation, {}

    def step(self, key: Any, state: Any, action: Any, values: Values) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:
        """By ``step_env``, which does not reset."""
        parameters = replaced(self._defaults, values)
        observation, after, reward, terminated, info = self._env.step_env(key, state, action, parameters)
        return after, observation, reward, terminated, self._env.is_truncated(after, parameters), info

    def render(self, state: Any, values: Values) -> Any:
        """A frame of gymnax's own visualizer."""
        from gymnax.visualize import Visualizer
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        drawn = Visualizer(self._env, replaced(self._defaults, values), [state])
        try:
            drawn.init()
            canvas: Any = FigureCanvasAgg(drawn.fig)
            canvas.draw()
            return np.asarray(canvas.buffer_rgba())[..., :3].copy()
        finally:
            pyplot.close(drawn.fig)
