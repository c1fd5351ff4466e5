"""What the tests of native environments share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gymnasium.vector import AutoresetMode

from envfleet import NativeVectorEnv

N = 5
IDS = [
    "Acrobot-v1",
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Blackjack-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "Taxi-v4",
]


def cart_poles(num_envs: int = N, **kwargs: Any) -> NativeVectorEnv:
    return NativeVectorEnv("CartPole-v1", num_envs, **kwargs)


def trajectory(envs: Any, steps: int = 60, seed: int = 3) -> list[Any]:
    envs.action_space.seed(seed)
    return [envs.reset(seed=seed), *(envs.step(envs.action_space.sample()) for _ in range(steps))]


def snapshots(envs: NativeVectorEnv) -> list[Any]:
    return [envs.get_state(i) for i in range(envs.num_envs)]


def played(envs: NativeVectorEnv, actions: Iterable[Any]) -> list[Any]:
    """What every step returned; where autoreset is disabled, and what resetting those that had finished returned."""
    told: list[Any] = []
    for batch in actions:
        told.append(envs.step(batch))
        finished = told[-1][2] | told[-1][3]
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and finished.any():
            told.append(envs.reset(options={"reset_mask": finished}))
    return told


def of_one(told: Iterable[Any], env: int) -> list[Any]:
    """What the steps of environment `env` returned: observations, rewards and flags."""
    return [[_row(part, env) for part in result[:4]] for result in told if len(result) == 5]


def _row(part: Any, env: int) -> Any:
    return tuple(each[env] for each in part) if isinstance(part, tuple) else part[env]
