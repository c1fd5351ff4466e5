"""Who steps: Gymnasium's vector environments, envfleet's, and one environment alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

import envfleet.vector

from .workloads import Workload, batched_actions, single_actions

BARE = "bare"
GYMNASIUM_SYNC = "gymnasium-sync"
GYMNASIUM_ASYNC = "gymnasium-async"
ENVFLEET_SYNC = "envfleet-sync"
ENVFLEET_PROCESS = "envfleet-process"
ENVFLEET_CALLER = "envfleet-process-caller"

Fleet = VectorEnv[Any, Any, Any]


@dataclass(frozen=True)
class Stepper:
    """A started engine: `step()` advances every environment once and returns how many steps that counts."""

    step: Callable[[], int]
    close: Callable[[], None]


def make_fleet(engine: str, workload: Workload) -> Fleet:
    """Make the vector environment called `engine`, with its default settings."""
    env_fns = [workload.env_fn()] * workload.num_envs
    if engine == GYMNASIUM_SYNC:
        return gymnasium.vector.SyncVectorEnv(env_fns)
    if engine == GYMNASIUM_ASYNC:
        return gymnasium.vector.AsyncVectorEnv(env_fns)
    if engine == ENVFLEET_SYNC:
        return envfleet.vector.SyncVectorEnv(env_fns)
    if engine == ENVFLEET_PROCESS:
        return envfleet.vector.AsyncVectorEnv(env_fns)
    if engine == ENVFLEET_CALLER:
        return envfleet.vector.AsyncVectorEnv(env_fns, caller_works=True)
    raise ValueError(f"unknown engine {engine!r}, there are {', '.join(ENGINES)}")


def start_fleet(engine: str, workload: Workload) -> Stepper:
    """Make and reset a fleet."""
    envs = make_fleet(engine, workload)
    mode = envs.metadata["autoreset_mode"]
    if mode is not AutoresetMode.NEXT_STEP:
        raise ValueError(f"steps are counted for NEXT_STEP autoresets, {engine} does {mode}")
    actions = itertools.cycle(batched_actions(envs.single_action_space, workload.num_envs))
    envs.reset(seed=0)
    ended = 0

    def step() -> int:
        nonlocal ended
        _, _, terminated, truncated, _ = envs.step(next(actions))
        # An environment whose episode ended in the round before was reset in this one, not stepped.
        counted = workload.num_envs - ended
        ended = int(np.count_nonzero(terminated | truncated))
        return counted

    return Stepper(step, envs.close)


def start_bare(workload: Workload) -> Stepper:
    """Make and reset one environment, to be stepped in a plain loop."""
    env = workload.env_fn()()
    actions = itertools.cycle(single_actions(env.action_space))
    env.reset(seed=0)

    def step() -> int:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset()
        return 1

    return Stepper(step, env.close)


def start(engine: str, workload: Workload) -> Stepper:
    """Start any engine by its name."""
    return start_bare(workload) if engine == BARE else start_fleet(engine, workload)


ENGINES = (BARE, GYMNASIUM_SYNC, GYMNASIUM_ASYNC, ENVFLEET_SYNC, ENVFLEET_PROCESS, ENVFLEET_CALLER)
