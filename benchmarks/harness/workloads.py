"""What is stepped: an environment, how many of it, and the actions it gets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector.utils import batch_space

BUSY_ID = "Busy1ms-v0"
ACTION_BATCHES = 128

# Copies started together also end their first episodes together. Until the episodes are well mixed a slow
# engine would see only the cheap steps of young episodes, a fast one the expensive resets as well.
MIXING_ROUNDS = {"LunarLander-v3": 150, "HalfCheetah-v5": 20, BUSY_ID: 5}
DEFAULT_MIXING_ROUNDS = 100


class BusyEnv(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """An environment that computes 1 ms a step and does nothing else; its episodes never end."""

    observation_space = Box(-1.0, 1.0, (4,), np.float32)
    action_space = Discrete(2)
    cpu_seconds = 1e-3

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Return a zero observation."""
        super().reset(seed=seed, options=options)
        return np.zeros(4, np.float32), {}

    def step(
        self,
        action: np.int64,  # noqa: ARG002
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Compute until this thread has used 1 ms of processor time.

        Wall-clock time would not do: two environments that share one core would both call themselves done
        after 1 ms in which each had computed for half of it.
        """
        end = time.thread_time() + self.cpu_seconds
        while time.thread_time() < end:
            pass
        return np.zeros(4, np.float32), 0.0, False, False, {}


gymnasium.register(BUSY_ID, entry_point="harness.workloads:BusyEnv")


@dataclass(frozen=True)
class Workload:
    """`num_envs` copies of the environment `env_id`."""

    env_id: str
    num_envs: int

    @classmethod
    def parse(cls, text: str) -> Workload:
        """Read `CartPole-v1:64`."""
        env_id, _, count = text.rpartition(":")
        if not env_id or not count.isdecimal() or int(count) < 1:
            raise ValueError(f"a workload is ID:NUM_ENVS, such as CartPole-v1:64, got {text!r}")
        return cls(env_id, int(count))

    @property
    def name(self) -> str:
        """As it is printed: `64 x CartPole-v1`."""
        return f"{self.num_envs} x {self.env_id}"

    @property
    def mixing_rounds(self) -> int:
        """How many batched steps until young and old episodes are mixed."""
        return MIXING_ROUNDS.get(self.env_id, DEFAULT_MIXING_ROUNDS)

    def env_fn(self) -> Callable[[], gymnasium.Env[Any, Any]]:
        """A function that makes one environment, in whatever process it is called."""
        # The spec instead of its name: a process started afresh has no registration of BusyEnv.
        return partial(gymnasium.make, gymnasium.spec(self.env_id))


def single_actions(space: Space[Any]) -> list[Any]:
    """Random actions for one environment, the same ones every time."""
    space.seed(0)
    return [space.sample() for _ in range(ACTION_BATCHES)]


def batched_actions(space: Space[Any], num_envs: int) -> list[Any]:
    """Random actions for a fleet, the same ones every time and for every engine."""
    return single_actions(batch_space(space, num_envs))


WORKLOADS = tuple(
    Workload(env_id, num_envs)
    for num_envs in (64, 8)
    for env_id in ("LunarLander-v3", "HalfCheetah-v5", "CartPole-v1", BUSY_ID)
    if (env_id, num_envs) != (BUSY_ID, 64)
)
CREATION_WORKLOAD = Workload("LunarLander-v3", 64)
