"""Fleets that are pickled and copied, and what libraries look at that take them for Gymnasium's."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import VectorEnv

from envfleet import AsyncVectorEnv, NativeVectorEnv, RayVectorEnv, SyncVectorEnv, make_vec, uniform
from envfleet.errors import ResetNeeded
from envfleet.native.atari import AtariVectorEnv
from envfleet.testing import assert_same
from envfleet.testing.envs import counter_fns
from envfleet.vector import FleetVectorEnv
from envfleet.wrappers import RecordEpisodeStatistics

KINDS = (SyncVectorEnv, AsyncVectorEnv, RayVectorEnv, NativeVectorEnv, AtariVectorEnv)

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda envs: pickle.loads(pickle.dumps(envs)),
    "deepcopy": deepcopy,
    "copy": copy,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_gymnasiums_class_is_a_direct_base(kind: type) -> None:
    assert VectorEnv in kind.__bases__
    assert issubclass(kind, FleetVectorEnv)
    assert kind.__mro__.index(FleetVectorEnv) < kind.__mro__.index(VectorEnv)


IDLE = np.zeros((3, 1), np.float32)


def trajectory(envs: Any) -> list[Any]:
    """A dozen steps from a seed."""
    envs.action_space.seed(4)
    return [envs.reset(seed=4), *(envs.step(envs.action_space.sample()) for _ in range(12))]


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("backend", ["sync", "process", "native"])
def test_a_copy_is_a_fleet_of_its_own_with_the_same_environments(backend: str, how: str) -> None:
    arguments: dict[str, Any] = {"autoreset_mode": "SAME_STEP", "first_ready": 2, "max_episode_steps": 6}
    with make_vec("Pendulum-v1", 3, backend, randomize={"g": uniform(8, 12)}, **arguments) as envs:
        envs.reset(seed=1)
        envs.step(IDLE)
        with COPIES[how](envs) as again:
            assert type(again) is type(envs)
            assert (again.plan, again.spec, again.first_ready) == (envs.plan, envs.spec, 2)
            assert again.metadata == envs.metadata
            for step in (lambda: again.step(IDLE), lambda: again.send(IDLE)):
                with pytest.raises(ResetNeeded, match=r"This fleet is a copy.* Call reset\(\)"):
                    step()
            assert_same(trajectory(again), trajectory(envs))
            assert_same(dict(again.parameters or {}), dict(envs.parameters or {}))
        envs.step(IDLE)  # the original goes on when its copy is closed


@pytest.mark.parametrize("make", [SyncVectorEnv, lambda fns: AsyncVectorEnv(fns, num_workers=1)])
def test_functions_without_a_name_travel_too(make: Callable[[Any], FleetVectorEnv]) -> None:
    with make([lambda: gymnasium.make("CartPole-v1")] * 2) as envs, pickle.loads(pickle.dumps(envs)) as again:
        assert_same(trajectory(again), trajectory(envs))


def test_wrappers_are_copied_with_what_they_wrap() -> None:
    wrapped = RecordEpisodeStatistics(make_vec("CartPole-v1", 2, "native"))
    again = deepcopy(wrapped)
    assert again.env is not wrapped.env
    again.reset(seed=0)
    again.step(np.zeros(2, np.int64))
    for envs in (wrapped, again):
        envs.close()


def test_what_cannot_be_copied_says_so() -> None:
    lock = threading.Lock()

    def make() -> Any:
        assert not lock.locked()
        return gymnasium.make("CartPole-v1")

    with SyncVectorEnv([make]) as envs, pytest.raises(TypeError, match="env_fns make what they need themselves"):
        deepcopy(envs)
    with pytest.raises(TypeError, match="This SyncVectorEnv is closed: make a new one"):
        pickle.dumps(envs)


def test_a_backend_from_outside_says_what_it_lacks() -> None:
    class OtherVectorEnv(FleetVectorEnv):
        def __init__(self, inner: SyncVectorEnv) -> None:
            vars(self).update(vars(inner))
            del vars(self)["_made_with"]

    with SyncVectorEnv(counter_fns(2)) as inner, pytest.raises(TypeError, match="remembers_arguments"):
        pickle.dumps(OtherVectorEnv(inner))
