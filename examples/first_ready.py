"""First-ready batches: the policy answers whoever is ready, so that slow environments do not delay the others."""

import time
from typing import Any

import gymnasium
import numpy as np
import tyro

from envfleet import AsyncVectorEnv


class Unsteady(gymnasium.Wrapper):
    """An environment whose steps take now a little, now ten times as long, as simulators with contacts do."""

    def step(self, action: Any) -> Any:
        """Wait, then step."""
        time.sleep(self.np_random.exponential(0.01))
        return super().step(action)


def make_env() -> gymnasium.Env:
    """One of them."""
    return Unsteady(gymnasium.make("CartPole-v1"))


def policy(observations: np.ndarray) -> np.ndarray:
    """Push towards the side the pole falls to: any function of a batch, whatever its size."""
    return (observations[:, 2] + observations[:, 3] > 0).astype(np.int64)


def all_together(envs: AsyncVectorEnv, steps: int) -> float:
    """Every step waits for the slowest. Returns environment steps per second."""
    observations, _ = envs.reset(seed=0)
    start = time.perf_counter()
    for _ in range(steps // envs.num_envs):
        observations, *_ = envs.step(policy(observations))
    return steps / (time.perf_counter() - start)


def whoever_is_ready(envs: AsyncVectorEnv, steps: int) -> float:
    """The first `first_ready` go on while the others are still at work."""
    envs.async_reset(seed=0)
    start = time.perf_counter()
    for _ in range(steps // envs.first_ready):
        observations, _, _, _, infos = envs.recv()
        envs.send(policy(observations), infos["env_id"])
    return steps / (time.perf_counter() - start)


def main(num_envs: int = 8, first_ready: int = 2, steps: int = 4000) -> None:
    """Compare both ways of stepping the same environments."""
    with AsyncVectorEnv([make_env] * num_envs, num_workers=num_envs, first_ready=first_ready) as envs:
        print(f"all together:     {all_together(envs, steps):>8,.0f} steps/s")
        print(f"whoever is ready: {whoever_is_ready(envs, steps):>8,.0f} steps/s")


if __name__ == "__main__":
    tyro.cli(main)
