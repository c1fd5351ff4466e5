"""Observations as tensors of torch and arrays of JAX, on the memory that the environments write to."""

from __future__ import annotations

import gc
import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from envfleet import make_vec
from envfleet.train.observations import to_tensors

BACKENDS = ["native", "sync", "process"]
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_trainers_hand_their_networks_the_memory_itself(backend: str) -> None:
    with live("CartPole-v1", backend) as envs:
        observations, _ = envs.reset(seed=1)
        tensor = to_tensors(observations, torch.device("cpu"))
        assert isinstance(tensor, torch.Tensor)
        assert tensor.data_ptr() == observations.ctypes.data


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


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
@pytest.mark.parametrize("backend", BACKENDS)
def test_jax_uses_the_same_memory(backend: str) -> None:
    # In a process of its own: JAX starts threads, after which this one could not be forked safely.
    subprocess.run([sys.executable, "-W", "ignore:os.fork", "-c", JAX, backend], check=True, timeout=120)
