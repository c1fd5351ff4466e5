"""Ours: `kind` is process, ray or native, `on_failure` is what it says; two workers of three environments each."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any, final

import numpy as np

from envfleet import AsyncVectorEnv, NativeVectorEnv, RayVectorEnv, make_vec
from fault_matrix.failing_env import NUM_ENVS
from fault_matrix.subject import SEED, Answer, CannotBeMeasured, Setup, Subject, rows, zeros

WORKERS = 2
RAY_STORE_BYTES = 128 * 2**20


@final
class EnvfleetFleet(Subject):
    """Any of our vector environments."""

    def __init__(self, envs: Any) -> None:
        self._envs = envs

    def reset(self) -> None:
        """Reset all environments."""
        self._envs.reset(seed=SEED)

    def step(self) -> Answer:
        """Step all environments."""
        observations, rewards, _, _, infos = self._envs.step(zeros())
        restarted = tuple(int(index) for index in np.flatnonzero(infos.get("restarted", ())))
        words = "; ".join(f"environment {index}: {infos['restart_cause'][index]}" for index in restarted)
        return Answer(rows(observations, rewards), restarted, words)

    def close(self) -> None:
        """Close it."""
        self._envs.close()


def make(setup: Setup) -> Subject:
    """Make one."""
    if setup.options["kind"] == "native":
        return EnvfleetFleet(_make_native(setup))
    settings: dict[str, Any] = {
        "num_workers": WORKERS,
        "on_failure": setup.options["on_failure"],
        "step_timeout": setup.step_seconds,
        "check_nan": setup.checks_nan,
    }
    if setup.options["kind"] == "process":
        return EnvfleetFleet(AsyncVectorEnv(setup.env_fns(), **settings))
    import ray

    ray.init(
        address="local",
        num_cpus=WORKERS,
        include_dashboard=False,
        logging_level=logging.ERROR,
        object_store_memory=RAY_STORE_BYTES,
        _temp_dir=setup.folder,
    )
    return EnvfleetFleet(RayVectorEnv(setup.env_fns(), **settings))


def _make_native(setup: Setup) -> Any:
    from envfleet import native
    from fault_matrix.native_library import build

    settings: dict[str, Any] = {}
    if setup.checks_nan:
        if "check_nan" not in inspect.signature(NativeVectorEnv.__init__).parameters:
            raise CannotBeMeasured("compiled environments have no check for NaN")
        settings["check_nan"] = True
    library = native.load(str(build(Path(setup.folder), setup.fault, setup.marker)))
    envs = make_vec(library, NUM_ENVS, "native", settings)
    envs.set_attr("index", list(range(NUM_ENVS)))
    return envs
