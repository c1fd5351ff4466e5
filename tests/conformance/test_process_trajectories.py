"""The same seed gives the same trajectory, whatever the start method and the number of workers."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from process_fleets import EVERY_START_METHOD, NUM_ENVS, process_fleet

from envfleet.testing import ReferenceFleet
from envfleet.testing.envs import EnvFn, Frame, PlaybackEnv, counter_fns
from envfleet.testing.spaces import ZOO, samples
from envfleet.testing.trajectories import compare_trajectories, wrapped_counter
from envfleet.vector import SyncVectorEnv

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


@EVERY_START_METHOD
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_counters(start_method: str, mode: AutoresetMode) -> None:
    fns = counter_fns(NUM_ENVS)
    with process_fleet(fns, start_method, autoreset_mode=mode) as envs:
        compare_trajectories(envs, ReferenceFleet(fns, mode), 40, seed=3)


def test_wrapped_counters(start_method: str) -> None:
    fns: list[EnvFn] = [partial(wrapped_counter, index) for index in range(NUM_ENVS)]
    with process_fleet(fns, start_method) as envs:
        compare_trajectories(envs, ReferenceFleet(fns, AutoresetMode.NEXT_STEP), 30, seed=5)


def test_a_real_environment(start_method: str) -> None:
    fns: list[EnvFn] = [partial(gym.make, "CartPole-v1") for _ in range(NUM_ENVS)]
    with process_fleet(fns, start_method, num_workers=3) as envs:
        compare_trajectories(envs, ReferenceFleet(fns, AutoresetMode.NEXT_STEP), 60, seed=7)


@pytest.mark.parametrize("name", ["Text", "OneOf", "custom", "mixed"])
def test_spaces_without_a_layout(start_method: str, name: str) -> None:
    space: Any = ZOO[name]
    fns: list[EnvFn] = [
        partial(PlaybackEnv, space, [Frame(sample) for sample in samples(space, index, 6)], space) for index in range(3)
    ]
    with process_fleet(fns, start_method) as envs:
        compare_trajectories(envs, ReferenceFleet(fns, AutoresetMode.NEXT_STEP), 5, seed=1)


@pytest.mark.parametrize("num_workers", [1, 2, 3, NUM_ENVS])
@pytest.mark.parametrize("caller_works", [False, True], ids=["caller waits", "caller works"])
def test_any_number_of_workers_gives_syncs_numbers(num_workers: int, caller_works: bool) -> None:
    fns = counter_fns(NUM_ENVS)
    sync = SyncVectorEnv(fns)
    with process_fleet(fns, num_workers=num_workers, caller_works=caller_works) as envs:
        assert np.array_equal(envs.reset(seed=8)[0], sync.reset(seed=8)[0])
        for step in range(30):
            actions = np.full(NUM_ENVS, step % 10)
            for ours, theirs in zip(envs.step(actions)[:4], sync.step(actions)[:4], strict=True):
                assert np.array_equal(ours, theirs)
    sync.close()
