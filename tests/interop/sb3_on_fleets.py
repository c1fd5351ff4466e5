"""A plugin of pytest under which Stable-Baselines3's own tests of its vector environments run on fleets instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import stable_baselines3.common.vec_env as theirs
from gymnasium.vector import AutoresetMode

import envfleet
from envfleet.adapters.sb3 import as_vec_env

EnvFns = Sequence[Callable[[], Any]]


class FleetInTheCallersThread(theirs.DummyVecEnv):
    """What the tests call DummyVecEnv."""

    def __new__(cls, env_fns: EnvFns) -> Any:
        return as_vec_env(envfleet.SyncVectorEnv(env_fns, autoreset_mode=AutoresetMode.SAME_STEP))


class FleetInWorkers(theirs.SubprocVecEnv):
    """What the tests call SubprocVecEnv."""

    def __new__(cls, env_fns: EnvFns, start_method: str | None = None) -> Any:
        how = {} if start_method is None else {"context": start_method}
        return as_vec_env(envfleet.AsyncVectorEnv(env_fns, autoreset_mode=AutoresetMode.SAME_STEP, **how))


theirs.DummyVecEnv = FleetInTheCallersThread  # type: ignore[misc]
theirs.SubprocVecEnv = FleetInWorkers  # type: ignore[misc]
