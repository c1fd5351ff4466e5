"""A started engine as the turns see it. Read by peers' Pythons too: it needs NumPy and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np


class Fleet(ABC):
    """An engine with its environments.

    Attributes:
        width: Rows a call: how many environments `step` takes actions for.
        action_space: Of a single environment.
        observation_space: Of a single environment.
    """

    def __init__(self, width: int, observation_space: Any, action_space: Any) -> None:
        self.width = width
        self.observation_space = observation_space
        self.action_space = action_space

    @abstractmethod
    def reset(self) -> Any:
        """Reset all environments; returns `width` observations."""

    @abstractmethod
    def step(self, actions: Any) -> tuple[Any, int]:
        """Take `width` actions; returns as many observations, and how many environments really made a step."""

    @abstractmethod
    def close(self) -> None:
        """End threads and processes."""

    def batch(self, actions: list[Any]) -> list[Any]:
        """Actions in the form this engine wants them, converted before anything is timed."""
        return actions


@final
class NextStepFleet(Fleet):
    """A vector environment with Gymnasium's interface, whose step after the end of an episode is the reset."""

    def __init__(
        self, envs: Any, num_envs: int, observation_space: Any, action_space: Any, *, seed: int | None
    ) -> None:
        super().__init__(num_envs, observation_space, action_space)
        self.envs = envs
        self._seed = seed
        self._ended = 0

    @classmethod
    def of(cls, envs: Any) -> NextStepFleet:
        """One that is a gymnasium.vector.VectorEnv."""
        return cls(envs, envs.num_envs, envs.single_observation_space, envs.single_action_space, seed=0)

    def reset(self) -> Any:
        """Reset all environments."""
        observations, _ = self.envs.reset() if self._seed is None else self.envs.reset(seed=self._seed)
        self._ended = 0
        return observations

    def step(self, actions: Any) -> tuple[Any, int]:
        """Step all environments; those whose episode ended in the call before are reset, which is no step."""
        observations, _, terminated, truncated, _ = self.envs.step(actions)
        counted = self.width - self._ended
        self._ended = int(np.count_nonzero(terminated | truncated))
        return observations, counted

    def close(self) -> None:
        """End threads and processes."""
        self.envs.close()


@final
class FirstReadyFleet(Fleet):
    """`batch_size` environments at a time, whichever are ready, by `send` and `recv`; resets as above."""

    def __init__(self, envs: Any, num_envs: int, batch_size: int, observation_space: Any, action_space: Any) -> None:
        super().__init__(batch_size, observation_space, action_space)
        self.envs = envs
        self._ended = np.zeros(num_envs, np.bool_)
        self._ids: Any = None

    def reset(self) -> Any:
        """Reset all environments and receive the first that are ready."""
        self.envs.async_reset()
        self._ended[:] = True  # so that nobody's first row, which is a reset, counts
        observations, _, _, _, infos = self.envs.recv()
        self._ids = infos["env_id"]
        self._ended[self._ids] = False
        return observations

    def step(self, actions: Any) -> tuple[Any, int]:
        """Send actions to those received last, receive others."""
        self.envs.send(actions, self._ids)
        observations, _, terminated, truncated, infos = self.envs.recv()
        ids = self._ids = infos["env_id"]
        counted = self.width - int(np.count_nonzero(self._ended[ids]))
        self._ended[ids] = terminated | truncated
        return observations, counted

    def close(self) -> None:
        """End threads and processes."""
        self.envs.close()
