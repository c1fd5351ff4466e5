"""Ours: `kind` is sync, process, ray or native; further options are those of the class, and `first_ready`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from envfleet import AsyncVectorEnv, RayVectorEnv, SyncVectorEnv, make_vec
from harness.fleet import FirstReadyFleet, Fleet, NextStepFleet
from harness.workloads import PONG, Workload

RAY_STORE_BYTES = 256 * 2**20


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:
    """Make one, with default settings but for the options."""
    settings = {name: value for name, value in options.items() if name not in ("kind", "first_ready")}
    batch_size = max(workload.num_envs // 2, 1)
    if options.get("first_ready"):
        settings["batch_size"] = batch_size
    envs = _make(workload, options["kind"], settings)
    if not options.get("first_ready"):
        return NextStepFleet.of(envs)
    return FirstReadyFleet(envs, workload.num_envs, batch_size, envs.single_observation_space, envs.single_action_space)


def _make(workload: Workload, kind: str, settings: dict[str, Any]) -> Any:
    if kind == "native":
        workload.register()
        # As ale-py's own by default: no sticky actions.
        env_kwargs: dict[str, Any] = {"repeat_action_probability": 0.0} if workload.env_id == PONG else {}
        return make_vec(workload.env_id, workload.num_envs, "native", settings, **env_kwargs)
    if kind == "ray":
        _start_ray()
    env_fns = [workload.env_fn()] * workload.num_envs
    return {"sync": SyncVectorEnv, "process": AsyncVectorEnv, "ray": RayVectorEnv}[kind](env_fns, **settings)


def _start_ray() -> None:
    """One of its own, whatever else runs here, with nothing but what actors need."""
    import ray

    ray.init(
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=RAY_STORE_BYTES,
    )
