"""MuJoCo and nothing else: its own C loop over mj_step, on as many threads as there are cores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import mujoco
import numpy as np
from mujoco.rollout import Rollout


def bare_turns(env_id: str, num_envs: int) -> tuple[Callable[[float], float], Callable[[], None]]:
    """A function that steps for so many seconds and returns environment steps a second; and one that ends the threads.

    A step of an environment is ``frame_skip`` steps of MuJoCo. There is no observation, no reward, no reset.
    """
    env: Any = gymnasium.make(env_id).unwrapped
    rng = np.random.default_rng(0)
    low, high = env.action_space.low, env.action_space.high
    actions = rng.uniform(low, high, (num_envs, 64, env.model.nu)).astype(np.float32)
    control = np.repeat(actions.astype(np.float64), env.frame_skip, axis=1)
    parts = mujoco.mjtState.mjSTATE_FULLPHYSICS
    state = np.empty((num_envs, mujoco.mj_stateSize(env.model, parts)))
    for row in state:
        env.reset(seed=int(rng.integers(2**31)))
        mujoco.mj_getState(env.model, env.data, row, parts)
    threads = min(len(os.sched_getaffinity(0)), num_envs)
    pool = Rollout(nthread=threads)
    data = [mujoco.MjData(env.model) for _ in range(threads)]

    def turn(seconds: float) -> float:
        begin, done = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            states, _ = pool.rollout(env.model, data, state, control, chunk_size=1)
            state[:] = states[:, -1]
            done += actions.shape[1]
        return done * num_envs / (time.perf_counter() - begin)

    return turn, pool.close
