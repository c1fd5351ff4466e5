"""MuJoCo and nothing else: its own C loop over mj_step, on as many threads as there are cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, final

import gymnasium
import mujoco
import numpy as np
from mujoco.rollout import Rollout

from harness.fleet import Fleet
from harness.workloads import Workload

ROUNDS = 64
"""Steps a call: the loop over them is MuJoCo's too."""


@final
class BareMujoco(Fleet):
    """What there would be to gain. A step is `frame_skip` steps of MuJoCo: no observation, no reward, no reset."""

    def __init__(self, env: Any, num_envs: int) -> None:
        super().__init__(num_envs, env.observation_space, env.action_space)
        self._env = env
        self._threads = min(len(os.sched_getaffinity(0)), num_envs)
        self._pool = Rollout(nthread=self._threads)
        self._data = [mujoco.MjData(env.model) for _ in range(self._threads)]
        self._parts = mujoco.mjtState.mjSTATE_FULLPHYSICS

    def reset(self) -> Any:
        """Put the environments into start states."""
        model = self._env.model
        self._state = np.empty((self.width, mujoco.mj_stateSize(model, self._parts)))
        for seed, row in enumerate(self._state):
            self._env.reset(seed=seed)
            mujoco.mj_getState(model, self._env.data, row, self._parts)
        return self._state

    def step(self, actions: Any) -> tuple[Any, int]:
        """Run `ROUNDS` steps in all of them."""
        states, _ = self._pool.rollout(self._env.model, self._data, self._state, actions, chunk_size=1)
        self._state[:] = states[:, -1]
        return self._state, self.width * ROUNDS

    def batch(self, actions: list[Any]) -> list[Any]:
        """One array [environments, steps of MuJoCo, motors] for `ROUNDS` steps."""
        chosen = np.stack(actions[:ROUNDS], axis=1).astype(np.float64)
        return [np.repeat(chosen, self._env.frame_skip, axis=1)]

    def close(self) -> None:
        """End the threads."""
        self._pool.close()


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:  # noqa: ARG001  there is nothing to choose
    """Make the simulations."""
    return BareMujoco(gymnasium.make(workload.env_id).unwrapped, workload.num_envs)
