"""ale-py's own vector environment in C++, with its default settings, which are the standard preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ale_py.vector_env import AtariVectorEnv

from harness.fleet import Fleet, NextStepFleet
from harness.workloads import Workload


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:  # noqa: ARG001  there is nothing to choose
    """Make one."""
    game = workload.env_id.removeprefix("ALE/").removesuffix("-v5").lower()
    return NextStepFleet.of(AtariVectorEnv(game, workload.num_envs))
