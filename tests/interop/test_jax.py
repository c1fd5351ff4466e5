"""JAX takes the arrays of a step where they lie."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envfleet import make_vec

STEPS = 40


@pytest.mark.parametrize(("env_id", "num_envs"), [("CartPole-v1", 64), ("Acrobot-v1", 7), ("CartPole-v1", 1000)])
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("backend", ["native", "sync", "process"])
def test_arrays_are_taken_without_a_copy(backend: str, copy: bool, env_id: str, num_envs: int) -> None:
    with make_vec(env_id, num_envs, backend, copy=copy) as envs:
        kept: list[Any] = [envs.reset(seed=0)[0]]  # all of them: memory that was used before is not given twice
        for _ in range(STEPS if backend == "native" or num_envs < 1000 else 5):
            kept.append(envs.step(envs.action_space.sample())[0])
        for array in kept:
            taken = jnp.from_dlpack(array)
            assert taken.unsafe_buffer_pointer() == array.ctypes.data
            if copy:
                np.testing.assert_array_equal(np.asarray(taken), array)
            jax.block_until_ready(taken)
