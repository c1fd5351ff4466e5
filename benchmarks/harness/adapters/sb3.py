"""Stable-Baselines3: `kind` is DummyVecEnv or SubprocVecEnv. Its step resets what has ended: all rows are steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from harness.fleet import Fleet
from harness.workloads import Workload


@final
class Sb3Fleet(Fleet):
    """A VecEnv."""

    def __init__(self, envs: Any) -> None:
        super().__init__(envs.num_envs, envs.observation_space, envs.action_space)
        self.envs = envs

    def reset(self) -> Any:
        """Reset all environments."""
        self.envs.seed(0)
        return self.envs.reset()

    def step(self, actions: Any) -> tuple[Any, int]:
        """Step all environments."""
        observations, _, _, _ = self.envs.step(actions)
        return observations, self.width

    def close(self) -> None:
        """End the processes."""
        self.envs.close()


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:
    """Make a VecEnv; processes are forked, which starts sooner than their default and steps as fast."""
    env_fns = [workload.env_fn()] * workload.num_envs
    if options["kind"] == "DummyVecEnv":
        return Sb3Fleet(DummyVecEnv(env_fns))
    return Sb3Fleet(SubprocVecEnv(env_fns, start_method="fork"))
