"""What a fleet should say, restarts included: single environments stepped by hand.

Nothing is shared with the engine, so that agreeing with it means something.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

Transition: TypeAlias = "tuple[Any, float, bool, bool, dict[str, Any]]"


def seed_after_restart(seed: int, number: int) -> int:
    """The documented rule: what the `number`-th restart since ``reset(seed=seed)`` is seeded with."""
    return int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0])


class Lone:
    """One environment, stepped and restarted as the documentation says."""

    def __init__(self, env_fn: Callable[[], gymnasium.Env[Any, Any]], mode: AutoresetMode) -> None:
        self._env_fn, self._mode = env_fn, mode
        self.env: Any = env_fn()
        self._seed: int | None = None
        self._next_seed: int | None = None
        self.restarts = 0
        self.finished = False
        self.last: Any = None

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """What the fleet's reset tells of this environment."""
        if seed is not None:
            self._seed, self.restarts = seed, 0
            self._next_seed = None
        self.finished = False
        return self._reset(seed)

    def step(self, action: Any) -> Transition:
        """What the fleet's step tells of this environment."""
        if self.finished and self._mode is AutoresetMode.NEXT_STEP:
            self.finished = False
            observation, info = self._reset()
            return observation, 0.0, False, False, info
        assert not self.finished, "a finished environment was stepped"
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._ended(deepcopy(observation), float(reward), bool(terminated), bool(truncated), info)

    def restart(self) -> Transition:
        """The environment was lost: a new one takes its place, and this is the row that tells."""
        self.env = self._env_fn()
        self.restarts += 1
        if self._seed is not None:
            self._next_seed = seed_after_restart(self._seed, self.restarts)
        return self._ended(self.last, 0.0, False, True, {})

    def restart_once_more(self) -> Any:
        """It had been lost twice before it could tell: what its reset gives then."""
        self.env = self._env_fn()
        self.restarts += 1
        assert self._seed is not None
        return self._reset(seed_after_restart(self._seed, self.restarts))[0]

    def restart_and_reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """The environment was lost on its way through reset()."""
        self.restart_silently()
        return self.reset(seed)

    def restart_silently(self) -> None:
        """The environment was lost, and its next row is one of reset()."""
        mode, self._mode = self._mode, AutoresetMode.DISABLED
        self.restart()
        self._mode = mode

    def _ended(self, observation: Any, reward: float, terminated: bool, truncated: bool, info: Any) -> Transition:
        self.last = observation
        if not (terminated or truncated):
            return observation, reward, terminated, truncated, info
        if self._mode is AutoresetMode.SAME_STEP:
            final = {"final_obs": observation, "final_info": deepcopy(info)}
            observation, reset_info = self._reset()
            return observation, reward, terminated, truncated, {**final, **reset_info}
        self.finished = True
        return observation, reward, terminated, truncated, info

    def _reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is None:
            seed, self._next_seed = self._next_seed, None
        observation, info = self.env.reset(seed=seed)
        self.last = deepcopy(observation)
        return deepcopy(observation), dict(info)
