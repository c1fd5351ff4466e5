"""A short form of the conformance suite, for an envfleet that was installed, on any machine, with any versions.

What is compared with Gymnasium's environments needs those: where Box2D is not installed, that part is skipped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv as GymnasiumVectorEnv

import envfleet
from envfleet import AsyncVectorEnv, FleetVectorEnv, NativeVectorEnv, SyncVectorEnv
from envfleet.testing import AutoresetContract, InfosContract, SeedingContract, TrajectoriesContract, assert_same
from envfleet.testing.envs import EnvFn

NUM_ENVS = 3
# Those that every Gymnasium from 1.1 has in the same version, and whose compiled twin is equal to them all.
COMPARED = ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "LunarLander-v3", "BipedalWalker-v3"]
# NumPy 1 computes these in another precision, so Gymnasium's own give other last digits there: docs/native.md.
ROUNDED_BY_NUMPY_1 = ("Pendulum-v1", "MountainCarContinuous-v0", "BipedalWalker-v3")
NEEDS_BOX2D = ("LunarLander-v3", "BipedalWalker-v3")


class TestSync(TrajectoriesContract, AutoresetContract, SeedingContract, InfosContract):
    max_examples = 3

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> SyncVectorEnv:
        return SyncVectorEnv(env_fns, **kwargs)


class TestProcess(TrajectoriesContract, AutoresetContract, SeedingContract, InfosContract):
    max_examples = 3

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, num_workers=2, **kwargs)


@pytest.mark.parametrize("env_id", COMPARED)
def test_compiled_environments_give_gymnasiums_numbers(env_id: str) -> None:
    if env_id in NEEDS_BOX2D and importlib.util.find_spec("Box2D") is None:
        pytest.skip("Gymnasium's own needs Box2D, which is not installed")
    if env_id in ROUNDED_BY_NUMPY_1 and np.__version__.startswith("1."):
        pytest.skip("equal to the last bit under NumPy 2 only")
    theirs = GymnasiumVectorEnv([partial(gymnasium.make, env_id)] * NUM_ENVS)
    assert_same(played(NativeVectorEnv(env_id, NUM_ENVS)), played(theirs))


def test_box2d_is_compiled_in() -> None:
    licence = Path(envfleet.__file__).parent / "licenses" / "Box2D-License.txt"
    assert "Erin Catto" in licence.read_text()
    for env_id in NEEDS_BOX2D:
        with envfleet.make_vec(env_id, NUM_ENVS) as envs:
            assert type(envs) is NativeVectorEnv
            assert np.isfinite(envs.reset(seed=1)[0]).all()
            assert np.isfinite(envs.step(envs.action_space.sample())[0]).all()


def test_make_vec_drives_gymnasiums_wrappers() -> None:
    with envfleet.make_vec("CartPole-v1", NUM_ENVS, backend="process") as envs:
        assert isinstance(envs, FleetVectorEnv)
        recorded = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
        recorded.reset(seed=1)
        ended = [recorded.step(recorded.action_space.sample())[4].get("episode") for _ in range(60)]
        assert any(each is not None for each in ended)


def test_training_learns_to_balance(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs the extra [train]")
    from envfleet.train import A2CConfig, train

    config = A2CConfig("CartPole-v1", num_envs=8, seed=0, total_steps=40_960)
    result = train(config, run_dir=tmp_path / "run")
    assert result.step == config.total_steps
    assert (tmp_path / "run" / "metrics.csv").exists()


def played(envs: Any, steps: int = 120) -> list[Any]:
    """What a fleet returns, over the ends of episodes."""
    envs.action_space.seed(3)
    told = [envs.reset(seed=7), *(envs.step(envs.action_space.sample()) for _ in range(steps))]
    envs.close()
    return told
