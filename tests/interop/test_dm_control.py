"""Environments of dm_control, made by Shimmy, in fleets."""

from __future__ import annotations

import os

os.environ.setdefault("MUJOCO_GL", "disable")

import gymnasium
import pytest
import shimmy
from guests import START_METHODS, check_guest

gymnasium.register_envs(shimmy)

pytestmark = pytest.mark.filterwarnings("default")  # those of the guests are no business of ours


@pytest.mark.parametrize("context", START_METHODS)
@pytest.mark.parametrize("env_id", ["dm_control/cartpole-balance-v0", "dm_control/walker-walk-v0"])
def test_a_guest_does_in_workers_what_it_does_here(env_id: str, context: str) -> None:
    check_guest(env_id, context)
