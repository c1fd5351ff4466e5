"""EnvPool's own C++ environments; `first_ready` for half of them a call, `num_threads` as it is in its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import envpool

from harness.fleet import FirstReadyFleet, Fleet, NextStepFleet
from harness.workloads import PONG, Workload


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:
    """Make a pool."""
    num_envs = workload.num_envs
    settings = {name: value for name, value in options.items() if name != "first_ready"}
    env_id = workload.env_id
    if env_id == PONG:
        env_id = "Pong-v5"
        settings.update(frame_skip=4, stack_num=4, gray_scale=True, img_height=84, img_width=84, noop_max=30)
    if not options.get("first_ready"):
        envs = envpool.make_gymnasium(env_id, num_envs=num_envs, seed=0, **settings)
        return NextStepFleet(envs, num_envs, envs.observation_space, envs.action_space, seed=None)
    batch_size = max(num_envs // 2, 1)
    envs = envpool.make_gymnasium(env_id, num_envs=num_envs, batch_size=batch_size, seed=0, **settings)
    return FirstReadyFleet(envs, num_envs, batch_size, envs.observation_space, envs.action_space)
