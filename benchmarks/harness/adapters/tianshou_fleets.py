"""Tianshou: `kind` is DummyVectorEnv or ShmemVectorEnv, `wait` for half of them only. Its users reset what ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import numpy as np
from tianshou.env import DummyVectorEnv, ShmemVectorEnv

from harness.fleet import Fleet
from harness.workloads import Workload


@final
class TianshouFleet(Fleet):
    """A BaseVectorEnv; if it does not wait for all, a call has as many rows as there were ready."""

    def __init__(self, envs: Any) -> None:
        super().__init__(len(envs), envs.observation_space[0], envs.action_space[0])
        self.envs = envs
        self._ids = np.arange(len(envs))

    def reset(self) -> Any:
        """Reset all environments; if it does not wait for all, one step of all gets the others under way."""
        self.envs.seed(0)
        observations, _ = self.envs.reset()
        if not self.envs.is_async:
            return observations
        actions = np.stack([self.action_space.sample() for _ in self._ids])
        return self.step(actions)[0]

    def step(self, actions: Any) -> tuple[Any, int]:
        """Step those that are ready, receive others, reset those that have ended."""
        observations, _, terminated, truncated, infos = self.envs.step(actions[: len(self._ids)], self._ids)
        if self.envs.is_async:
            self._ids = np.array([info["env_id"] for info in infos])
        ended = terminated | truncated
        if ended.any():
            observations[ended], _ = self.envs.reset(self._ids[ended])
        return observations, len(infos)

    def close(self) -> None:
        """End the processes."""
        self.envs.close()


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:
    """Make one with its default settings."""
    kind = {"DummyVectorEnv": DummyVectorEnv, "ShmemVectorEnv": ShmemVectorEnv}[options["kind"]]
    wait_num = max(workload.num_envs // 2, 1) if options.get("wait") else None
    return TianshouFleet(kind([workload.env_fn()] * workload.num_envs, wait_num=wait_num))
