"""Environments of Gymnasium-Robotics in fleets; its Fetch robots need a MuJoCo before 4."""

from __future__ import annotations

import gymnasium
import gymnasium_robotics
import pytest
from guests import START_METHODS, check_guest

gymnasium.register_envs(gymnasium_robotics)

pytestmark = pytest.mark.filterwarnings("default")  # those of the guests are no business of ours


@pytest.mark.parametrize("context", START_METHODS)
@pytest.mark.parametrize("env_id", ["FetchReach-v4", "PointMaze_UMaze-v3", "AdroitHandDoor-v1"])
def test_a_guest_does_in_workers_what_it_does_here(env_id: str, context: str) -> None:
    check_guest(env_id, context)
