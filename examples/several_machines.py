"""Several machines: environments in Ray actors, wherever a cluster has room; docs/ray.md says how to start one."""

import platform
import time
from collections import Counter
from typing import Any

import gymnasium
import tyro

from envfleet import RayVectorEnv


class Simulator(gymnasium.Wrapper):
    """Stands for an environment that one machine is too small for: each step computes for a while."""

    seconds = 0.005

    def step(self, action: Any) -> Any:
        """Compute, then step."""
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        return super().step(action)

    def machine(self) -> str:
        """The name of the machine it runs on."""
        return platform.node()


def make_env() -> gymnasium.Env:
    """One of them."""
    return Simulator(gymnasium.make("CartPole-v1"))


def main(num_envs: int = 8, num_workers: int | None = None, steps: int = 200) -> None:
    """Step them for a while, and say who ran how many of them.

    Args:
        num_envs: how many environments.
        num_workers: in how many actors; by default as many as the cluster has room for.
        steps: of each environment.
    """
    with RayVectorEnv([make_env] * num_envs, num_workers=num_workers, on_failure="restart", step_timeout=60) as envs:
        print(envs.plan)
        for machine, number in Counter(envs.call("machine")).items():
            print(f"{machine}: {number} environments")
        envs.reset(seed=0)
        start = time.perf_counter()
        for _ in range(steps):
            envs.step(envs.action_space.sample())  # your policy goes here
        rate = num_envs * steps / (time.perf_counter() - start)
        print(f"{rate:,.0f} steps/s, one alone would make {1 / Simulator.seconds:,.0f} at most")


if __name__ == "__main__":
    tyro.cli(main)
