"""One functional environment as a Python object, for those that look at one at a time: a film, for instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from envfleet.device.env import JaxVectorEnv


@final
class SingleFunctionalEnv(gym.Env[Any, Any]):
    """A fleet of one. Its episodes are those that the fleet's environment ``i`` plays with ``reset(seed=seed + i)``.

    Args:
        spec: Of a functional environment.
        env_kwargs: As for JaxVectorEnv.
    """

    render_mode = "rgb_array"

    def __init__(self, spec: EnvSpec, env_kwargs: Mapping[str, Any]) -> None:
        kwargs = {**env_kwargs, "render_mode": self.render_mode}
        self._envs = JaxVectorEnv(spec, 1, autoreset_mode=AutoresetMode.DISABLED, env_kwargs=kwargs)
        self.spec = spec
        self.observation_space, self.action_space = self._envs.single_observation_space, self._envs.single_action_space
        self.metadata = dict(self._envs.metadata)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new episode; infos are left out."""
        super().reset(seed=seed)
        return self._first(self._envs.reset(seed=seed, options=options)[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; infos are left out."""
        space = self.action_space
        room: Any = create_empty_array(space, 1)
        observations, rewards, terminated, truncated, _ = self._envs.step(concatenate(space, [action], room))
        return self._first(observations), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {}

    def _first(self, batched: Any) -> Any:
        return next(iter(iterate(self._envs.observation_space, batched)))

    def render(self) -> Any:
        """A frame by the environment's own library."""
        return self._envs.render()[0]

    def close(self) -> None:
        """Closes the fleet."""
        self._envs.close()
