"""Problems so small that one knows the right answer."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

IDENTITY_SPACES: dict[str, spaces.Space[Any]] = {
    "Discrete": spaces.Discrete(4, start=1),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(3),
    "Box": spaces.Box(-2.0, 2.0, (2,), np.float32),
}


class IdentityEnv(gym.Env[Any, Any]):
    """The observation is the right action; the reward is the share of it that was got right, for Box the nearness."""

    def __init__(self, kind: str = "Discrete") -> None:
        self.observation_space = self.action_space = IDENTITY_SPACES[kind]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._wanted = self.observation_space.sample()
        return self._wanted, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if isinstance(self.action_space, spaces.Box):
            reward = -float(np.abs(action - self._wanted).mean())
        else:
            reward = float(np.mean(np.equal(action, self._wanted)))
        self._wanted = self.observation_space.sample()
        return self._wanted, reward, False, False, {}


class TwofoldEnv(gym.Env[Any, Any]):
    """Shows a number to pick and a place to go to, and takes both: 2 is the best reward, for getting both right."""

    observation_space = spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-2.0, 2.0, (2,), np.float32)])
    action_space = spaces.Dict({"pick": spaces.Discrete(3, start=1), "go": spaces.Box(-2.0, 2.0, (2,), np.float32)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._wish(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        number, place = self._wanted
        reward = float(action["pick"] == number) + 1 - float(np.abs(action["go"] - place).mean())
        return self._wish(), reward, False, False, {}

    def _wish(self) -> Any:
        place = self.np_random.uniform(-2, 2, 2).astype(np.float32)
        self._wanted = self.np_random.integers(1, 4), place
        return self._wanted


class ChainEnv(gym.Env[np.int64, np.int64]):
    """States 0 to n-1 in turn, whatever one does; leaving state i pays `rewards[i]`.

    Args:
        rewards: one a state.
        ending: what happens after the last state: "never" goes round; "terminated" or "both" ends the episode.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, rewards: list[float], ending: str = "never") -> None:
        self.observation_space = spaces.Discrete(len(rewards))
        self._rewards, self._ending = rewards, ending

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = 0
        return np.int64(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = self._rewards[self._state]
        self._state = (self._state + 1) % len(self._rewards)
        over = self._state == 0 and self._ending != "never"
        return np.int64(self._state), reward, over, over and self._ending == "both", {}


def chain_values(rewards: list[float], gamma: float, ending: str = "never") -> np.ndarray:
    """The true values of a chain's states."""
    size = len(rewards)
    following = np.roll(np.eye(size), 1, axis=1)
    if ending != "never":
        following[-1] = 0
    return np.linalg.solve(np.eye(size) - gamma * following, rewards)


IDENTITY, CHAIN, TWOFOLD = "tiny/Identity-v0", "tiny/Chain-v0", "tiny/Twofold-v0"
gym.register(TWOFOLD, TwofoldEnv, max_episode_steps=16, disable_env_checker=True)
gym.register(IDENTITY, IdentityEnv, max_episode_steps=16, disable_env_checker=True)
gym.register(CHAIN, ChainEnv, max_episode_steps=5, disable_env_checker=True)
