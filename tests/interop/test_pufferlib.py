"""PufferLib's vector environments beside fleets: the same seeds and actions give the same, and the page runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pufferlib.emulation
import pufferlib.vector
import pytest
from coming_from import run_block, scripts_of

import envfleet

COPIES = 4


def theirs(env_id: str, backend: Any, **how: Any) -> Any:
    def make_env(buf: Any = None, seed: int = 0) -> Any:
        return pufferlib.emulation.GymnasiumPufferEnv(env=gymnasium.make(env_id), buf=buf, seed=seed)

    return pufferlib.vector.make(make_env, backend=backend, num_envs=COPIES, **how)


@pytest.mark.parametrize("backend", ["sync", "process", "native"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1"])
def test_trajectories_are_theirs(env_id: str, backend: str) -> None:
    vecenv = theirs(env_id, pufferlib.vector.Serial)
    actions = np.random.default_rng(0).integers(0, 2, (120, COPIES))
    ends = 0
    with envfleet.make_vec(env_id, COPIES, backend) as envs:
        np.testing.assert_array_equal(envs.reset(seed=7)[0], vecenv.reset(seed=7)[0])
        for each in actions:
            ours, other = envs.step(each), vecenv.step(each)
            for mine, their in zip(ours[:4], other[:4], strict=True):
                np.testing.assert_array_equal(np.asarray(mine, their.dtype), their)
            ends += int((ours[2] | ours[3]).sum())
    vecenv.close()
    assert ends > 4 or env_id != "CartPole-v1"


def test_first_ready_batches_hold_what_theirs_do() -> None:
    """Batches come in any order on both sides; per environment they are the same.

    Each of their workers counts on from its own seed: two workers with two environments get 7, 8 and 8, 9.
    """
    vecenv = theirs("CartPole-v1", pufferlib.vector.Multiprocessing, num_workers=2, batch_size=2)
    found: dict[int, list[Any]] = {}
    vecenv.async_reset(7)
    for _ in range(60):
        observations, *_, env_ids, _ = vecenv.recv()
        for row, env_id in enumerate(env_ids):
            found.setdefault(int(env_id), []).append(observations[row].copy())
        vecenv.send(np.ones(2, int))
    vecenv.close()
    mine: dict[int, list[Any]] = {}
    with envfleet.make_vec("CartPole-v1", COPIES, "process", num_workers=2, first_ready=2) as envs:
        envs.async_reset(seed=[7, 8, 8, 9])
        for _ in range(60):
            observations, *_, infos = envs.recv()
            for row, env_id in enumerate(infos["env_id"]):
                mine.setdefault(int(env_id), []).append(observations[row])
            envs.send(np.ones(2, int), infos["env_id"])
    for env_id, rows in mine.items():
        for ours, their in zip(rows, found[env_id], strict=False):
            np.testing.assert_array_equal(ours, their)


@pytest.mark.parametrize("block", scripts_of("pufferlib"))
def test_python_blocks_run(block: str, tmp_path: Path) -> None:
    run_block(block, tmp_path)
