"""PufferLib's worker processes, with as many workers as cores; the step after the end of an episode is the reset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import pufferlib.emulation
import pufferlib.vector

from harness.fleet import Fleet
from harness.workloads import Workload


@final
class PufferFleet(Fleet):
    """One of PufferLib's vector environments, all environments a call."""

    def __init__(self, envs: Any, num_envs: int) -> None:
        super().__init__(num_envs, envs.single_observation_space, envs.single_action_space)
        self.envs = envs
        self._ended = 0

    def reset(self) -> Any:
        """Reset all environments."""
        self.envs.async_reset(0)
        return self.envs.recv()[0]

    def step(self, actions: Any) -> tuple[Any, int]:
        """Step all environments."""
        self.envs.send(actions)
        observations, _, terminated, truncated, *_ = self.envs.recv()
        counted = self.width - self._ended
        self._ended = int(np.count_nonzero(terminated | truncated))
        return observations, counted

    def close(self) -> None:
        """End the processes."""
        self.envs.close()


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:  # noqa: ARG001  there is nothing to choose
    """Make one."""
    cores = len(os.sched_getaffinity(0))
    workers = max(count for count in range(1, cores + 1) if workload.num_envs % count == 0)

    def creator(buf: Any = None, seed: int = 0) -> Any:
        return pufferlib.emulation.GymnasiumPufferEnv(env=workload.env_fn()(), buf=buf, seed=seed)

    envs = pufferlib.vector.make(
        creator,
        num_envs=workload.num_envs,
        num_workers=workers,
        batch_size=workload.num_envs,
        backend=pufferlib.vector.Multiprocessing,
    )
    return PufferFleet(envs, workload.num_envs)
