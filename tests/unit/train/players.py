"""Environments with known returns, and an agent that needs no training to play them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from envfleet.train import A2CConfig, train

Reset = tuple[Any, dict[str, Any]]
Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Coin(gym.Env[Any, Any]):
    """A toss decides an episode: 1 step with return `short`, or 40 steps with return `long`.

    A gravity of -12 or less is refused; the observation is the step's number, the toss and the gravity.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012  Gymnasium's name and type
    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-100, 100, (3,), np.float32)

    def __init__(
        self, gravity: float = -10.0, short: float = 0.0, long: float = 1.0, render_mode: str | None = None
    ) -> None:
        assert gravity > -12, f"gravity (current value: {gravity}) must be greater than -12"
        self.gravity, self.short, self.long = gravity, short, long
        self.render_mode = render_mode
        self._step, self._is_long = 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self._step, self._is_long = 0, bool(self.np_random.integers(2))
        return self._observe(), {}

    def step(self, action: Any) -> Step:
        self._step += 1
        over = self._step == (40 if self._is_long else 1)
        reward = (self.long if self._is_long else self.short) if over else 0.0
        return self._observe(), reward + 0.001 * int(action), over, False, {}

    def render(self) -> Any:
        """A white square goes from left to right over a dark ground, a row down an episode's kind."""
        picture = np.full((24, 60, 3), 40, np.uint8)
        top = 12 if self._is_long else 4
        picture[top : top + 4, self._step : self._step + 4] = 255
        return picture

    def _observe(self) -> Any:
        return np.array([self._step, self._is_long, self.gravity], np.float32)


class Endless(Coin):
    """Never ends by itself, and gives a reward of 1 a step."""

    def step(self, action: Any) -> Step:
        self._step = min(self._step + 1, 50)
        return self._observe(), 1.0, False, False, {}


class Unpainted(Coin):
    """Cannot be drawn."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()


class Noted(gym.Env[Any, Any]):
    """A Dict of observations; its episodes have 3 steps and its return is the first of them plus the seed's parity."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    action_space = spaces.Box(-2, 2, (1,), np.float32)
    observation_space = spaces.Dict({"room": spaces.Discrete(5), "where": spaces.Box(-1, 1, (2,), np.float32)})

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self._step = 0
        return self._observe(), {}

    def step(self, action: Any) -> Step:
        assert action in self.action_space
        self._step += 1
        return self._observe(), float(action[0]), False, self._step == 3, {}

    def render(self) -> Any:
        return np.full((8, 8, 3), 20 * self._step, np.uint8)

    def _observe(self) -> Any:
        return {"room": self._step, "where": np.zeros(2, np.float32)}


ENVIRONMENTS = {
    "players/Coin-v0": (Coin, 100),
    "players/Endless-v0": (Endless, None),
    "players/Unpainted-v0": (Unpainted, 100),
    "players/Noted-v0": (Noted, None),
}


def register_players() -> None:
    """Make the environments known to gymnasium.make, once."""
    for env_id, (entry_point, max_episode_steps) in ENVIRONMENTS.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point, max_episode_steps=max_episode_steps)


def zeros(observations: Any) -> Any:
    return np.zeros(len(observations), np.int64)


class Player:
    """What evaluation needs of an agent: `policy` maps a batch of observations to actions."""

    def __init__(
        self, env_id: str = "players/Coin-v0", policy: Callable[[Any], Any] = zeros, **env_kwargs: Any
    ) -> None:
        register_players()
        self.config = SimpleNamespace(env_id=env_id, env_kwargs=env_kwargs, randomize={})
        entry_point = ENVIRONMENTS[env_id][0]
        self.observation_space, self.action_space = entry_point.observation_space, entry_point.action_space
        self._policy = policy

    def act(self, observations: Any, deterministic: bool = True) -> Any:
        if deterministic:
            return self._policy(observations)
        return torch.randint(0, 2, (len(observations),)).numpy()


def trained_run(path: Path) -> Path:
    """A run in the Coin environment, as short as a run can be."""
    register_players()
    config = A2CConfig("players/Coin-v0", num_envs=2, total_steps=64, rollout_steps=16, backend="sync")
    train(config, run_dir=path, progress=False)
    return path
