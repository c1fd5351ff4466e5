"""A fleet that nobody holds any more lets go of its environments."""

import gc
import weakref

import gymnasium
import numpy as np
import pytest

from envfleet import SyncVectorEnv


@pytest.mark.parametrize("steps", [0, 1, 5], ids="{} steps".format)
@pytest.mark.parametrize("has_limit", [False, True], ids=["no limit", "time limit"])
def test_environments_of_a_dropped_fleet_are_collected(steps: int, has_limit: bool) -> None:
    limit = 100 if has_limit else -1
    envs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=limit)] * 2)
    envs.reset(seed=0)
    for _ in range(steps):
        envs.step(np.zeros(2, np.int64))
    held = [weakref.ref(env) for env in envs.envs]
    assert all(reference() is not None for reference in held)
    del envs
    gc.collect()
    assert [reference() for reference in held] == [None, None]
