"""Jumanji: ids such as ``jumanji:Game2048-v1``, environments, and classes of such."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Dict

from envfleet.device.families import refuse_unknown_id
from envfleet.device.functional import FunctionalEnv, Values, refuse_unknown, shared_out

try:
    import jumanji
    from jumanji.specs import Spec, jumanji_specs_to_gym_spaces
    from jumanji.wrappers import MultiToSingleWrapper
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error.name} is needed for Jumanji's environments and is not installed; run\n    "
        'pip install "envfleet[jax]" jumanji',
        name=error.name,
    ) from error

_MASK = "action_mask"


def adapted(what: Any, env_kwargs: Mapping[str, Any]) -> FunctionalEnv:
    """An id, an environment, or a class."""
    if isinstance(what, str):
        refuse_unknown_id(what, sorted(jumanji.registered_environments()), "Jumanji")
        return JumanjiEnv(jumanji.make(what, **env_kwargs), what)
    if isinstance(what, type):
        arguments, _ = shared_out(what, env_kwargs, (), what.__name__)
        return JumanjiEnv(what(**arguments), what.__name__)
    refuse_unknown(env_kwargs, (), type(what).__name__)
    return JumanjiEnv(what, type(what).__name__)


@final
class JumanjiEnv(FunctionalEnv):
    """A Jumanji environment. Rewards of several agents are added up, as Jumanji's own wrapper does it.

    Its parameters are constants: they are arguments of its constructor. An episode that ends with a discount is
    truncated, one that ends without is terminated. What the observation says about the actions that are possible is
    there, and in the infos too.
    """

    time_limit = None  # its own steps say it

    def __init__(self, env: Any, name: str) -> None:
        several = jax.eval_shape(env.reset, jax.random.PRNGKey(0))[1].reward.ndim > 0
        self._env, self._shown = (MultiToSingleWrapper(env) if several else env), env.unwrapped
        self.name = f"jumanji:{name}"
        self.values, self.defaults = {}, {}
        self.observation_space = _space(env.observation_spec)
        self.action_space = _space(env.action_spec)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def reset(self, key: Any, values: Values) -> tuple[Any, Any, dict[str, Any]]:  # noqa: ARG002
        """By Jumanji's ``reset``."""
        state, first = self._env.reset(key)
        return state, _plain(first.observation), self._info(first)

    def step(self, key: Any, state: Any, action: Any, values: Values) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:  # noqa: ARG002
        """By Jumanji's ``step``, whose random numbers come from the state."""
        after, shown = self._env.step(state, action)
        ended, goes_on = shown.last(), shown.discount != 0
        return after, _plain(shown.observation), shown.reward, ended & ~goes_on, ended & goes_on, self._info(shown)

    def _info(self, shown: Any) -> dict[str, Any]:
        observation = _plain(shown.observation)
        mask = {_MASK: observation[_MASK]} if isinstance(observation, dict) and _MASK in observation else {}
        return {**shown.extras, **mask}

    def render(self, state: Any, values: Values) -> Any:
        """By the environment's own viewer."""
        viewers = (getattr(self._shown, name, None) for name in ("_viewer", "_env_viewer", "viewer"))
        viewer = next((each for each in viewers if hasattr(each, "_display_rgb_array")), None)
        if viewer is None:
            return super().render(state, values)
        frames: list[Any] = []

        def keep(figure: Any) -> Any:  # in the place of its window, or of what it returns: some forget to
            figure.canvas.draw()
            frames.append(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())
            return frames[-1]

        viewer._display = keep
        with warnings.catch_warnings():
            # It shows its figure also where there is no screen.
            warnings.filterwarnings("ignore", message=".*non-interactive")
            self._shown.render(jax.tree.map(jnp.asarray, state))
        return frames[-1]

    def close(self) -> None:
        """Closes the viewer's figure."""
        self._shown.close()


def _space(spec: Spec[Any]) -> Space[Any]:
    """Jumanji's own translation; bools, whose bounds Gymnasium wants as numbers, and infinite bounds are set right."""
    space: Space[Any] = jumanji_specs_to_gym_spaces(spec)
    return _mended(space)


def _mended(space: Space[Any]) -> Space[Any]:
    if isinstance(space, Dict):
        return Dict({name: _mended(part) for name, part in space.spaces.items()})
    if isinstance(space, Box) and space.dtype == np.bool_:
        return Box(0, 1, space.shape, np.bool_)
    return space


def _plain(observation: Any) -> Any:
    """A named tuple or a dataclass as a dict."""
    if isinstance(observation, jax.Array | np.ndarray):
        return jnp.asarray(observation)
    fields = observation._asdict() if hasattr(observation, "_asdict") else vars(observation)
    return {name: _plain(part) for name, part in fields.items()}
