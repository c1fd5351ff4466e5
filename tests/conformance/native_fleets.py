"""What the tests of native environments share."""

from __future__ import annotations

from typing import Any

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
