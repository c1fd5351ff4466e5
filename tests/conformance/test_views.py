"""Observations as tensors of torch and arrays of JAX, on the memory that the environments write to."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
from contextlib import closing
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from envfleet import make_vec
from envfleet.testing import assert_same
from envfleet.train import A2CConfig, Networks, PPOConfig
from envfleet.train.algorithms.learner import Learner
from envfleet.train.algorithms.registry import make_learner
from envfleet.train.collecting import begin, collect
from envfleet.train.environments import make_task, make_training_envs

BACKENDS = ["native", "sync", "process"]
CACHE_LINE = 64
N = 4


def live(env_id: str, backend: str, *, copy: bool = False) -> Any:
    return make_vec(env_id, N, backend, {"copy": copy})


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tensor_on_a_live_view_shows_every_later_step(backend: str) -> None:
    with live("CartPole-v1", backend) as envs:
        observations, _ = envs.reset(seed=1)
        view = torch.from_dlpack(observations)
        assert view.dtype == torch.float32
        assert view.data_ptr() == observations.ctypes.data
        for _ in range(5):
            now = envs.step(np.ones(N, np.int64))[0]
            assert now.ctypes.data == view.data_ptr()
            np.testing.assert_array_equal(view.numpy(), now)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_part_of_a_nested_observation_can_be_viewed(backend: str) -> None:
    with live("Blackjack-v1", backend) as envs:
        parts, _ = envs.reset(seed=1)
        views = [torch.from_dlpack(part) for part in parts]
        envs.step(np.ones(N, np.int64))
        for view, part in zip(views, envs.step(np.zeros(N, np.int64))[0], strict=True):
            np.testing.assert_array_equal(view.numpy(), part)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_copied_never_changes_under_its_tensor(backend: str) -> None:
    with live("CartPole-v1", backend, copy=True) as envs:
        observations, _ = envs.reset(seed=1)
        view = torch.from_dlpack(observations)
        assert view.data_ptr() == observations.ctypes.data
        before = view.clone()
        for _ in range(5):
            envs.step(np.ones(N, np.int64))
        assert torch.equal(view, before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_memory_outlives_the_fleet_as_long_as_a_tensor_uses_it(backend: str) -> None:
    envs = live("Pendulum-v1", backend)
    observations, _ = envs.reset(seed=1)
    view = torch.from_dlpack(observations)
    before = view.clone()
    envs.close()
    del envs, observations
    gc.collect()
    # Whatever is allocated now must not land there, and reading must not be a crash.
    rubbish = [np.full(1 << 14, 7.0) for _ in range(64)]
    assert torch.equal(view, before)
    view.add_(1)
    assert torch.equal(view, before + 1)
    del rubbish


# What any library needs that speaks DLPack; JAX among them, which uses memory only where a cache line starts.
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "Taxi-v4"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_array_can_be_handed_on_by_dlpack(backend: str, env_id: str) -> None:
    with live(env_id, backend) as envs:
        observations, _ = envs.reset(seed=1)
        parts = observations if isinstance(observations, tuple) else (observations,)
        views = [np.from_dlpack(part) for part in parts]
        for part, view in zip(parts, views, strict=True):
            assert part.__dlpack_device__() == (1, 0)  # the processor's memory
            assert part.ctypes.data % CACHE_LINE == 0
            assert (view.ctypes.data, view.dtype, view.shape) == (part.ctypes.data, part.dtype, part.shape)
        envs.action_space.seed(1)
        later = envs.step(envs.action_space.sample())[0]
        assert_same(tuple(views), later if isinstance(later, tuple) else (later,))


# --- trainers --------------------------------------------------------------------------------------------


class WatchingActor(nn.Linear):
    """Notes where in memory the observations lie that it acts on."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.addresses: list[int] = []

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        self.addresses.append(observations.data_ptr())
        return super().forward(observations)


@pytest.mark.parametrize("make_config", [A2CConfig, PPOConfig])
@pytest.mark.parametrize("backend", BACKENDS)
def test_trainers_act_on_the_memory_itself(
    backend: Literal["native", "sync", "process"], make_config: type[A2CConfig | PPOConfig]
) -> None:
    config = make_config("CartPole-v1", num_envs=N, backend=backend)
    watching, shown = WatchingActor(), list[int]()
    with closing(make_training_envs(config)) as envs:
        address = envs.reset(seed=1)[0].ctypes.data
        for networks in (Networks(watching, nn.Linear(4, 1)), None):  # torch's forward pass, and the one in NumPy
            spaces = envs.single_observation_space, envs.single_action_space
            learner = make_learner(config, make_task(config, *spaces, networks))

            def policy(observations: Any, learner: Learner = learner) -> Any:
                shown.append(observations.ctypes.data)
                return learner.act(observations)

            collect(envs, policy, 6, begin(envs, seed=1))
    assert shown[:6] == watching.addresses
    for first, *later in (shown[:6], shown[6:]):
        assert later == [address] * 5
        assert first != address  # where a rollout begins is a copy: what learning does in between cannot spoil it


JAX = """
import gc, sys
import jax, numpy as np
import envfleet

envs = envfleet.make_vec("Pendulum-v1", 4, sys.argv[1], {"copy": False})
observations, _ = envs.reset(seed=1)
view = jax.dlpack.from_dlpack(observations)
assert view.unsafe_buffer_pointer() == observations.ctypes.data, "copied"
before = np.array(view)
now = envs.step(np.ones((4, 1), np.float32))[0]
assert not np.array_equal(before, np.asarray(view))
np.testing.assert_array_equal(np.asarray(view), now)
last = np.array(view)
envs.close()
del envs, observations, now
gc.collect()
np.testing.assert_array_equal(np.asarray(view + 0), last)
"""


# Not one of the packages that tests need, as it brings hundreds of megabytes: what it relies on is tested above.
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
@pytest.mark.parametrize("backend", BACKENDS)
def test_jax_uses_the_same_memory(backend: str) -> None:
    # In a process of its own: JAX starts threads, after which this one could not be forked safely.
    subprocess.run([sys.executable, "-W", "ignore:os.fork", "-c", JAX, backend], check=True, timeout=120)
