"""Gymnasium's own: `kind` is sync, async or vector (an implementation of the environment's own, over arrays)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from harness.fleet import Fleet, NextStepFleet
from harness.workloads import Workload


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:
    """Make one with its default settings."""
    kind = options["kind"]
    if kind == "vector":
        return NextStepFleet.of(gymnasium.make_vec(workload.env_id, workload.num_envs, "vector_entry_point"))
    env_fns = [workload.env_fn()] * workload.num_envs
    fleets = {"sync": gymnasium.vector.SyncVectorEnv, "async": gymnasium.vector.AsyncVectorEnv}
    return NextStepFleet.of(fleets[kind](env_fns))
