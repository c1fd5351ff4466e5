"""TorchRL on fleets: the same data as on its SerialEnv and ParallelEnv, to the bit."""

from __future__ import annotations

import multiprocessing
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from coming_from import run_block, scripts_of
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from libraries import PATIENCE
from tensordict import TensorDict
from tensordict.nn import InteractionType, TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import (
    Compose,
    GymEnv,
    GymWrapper,
    ParallelEnv,
    SerialEnv,
    StepCounter,
    TransformedEnv,
    check_env_specs,
)
from torchrl.modules import NormalParamExtractor, OneHotCategorical, ProbabilisticActor, TanhNormal

import envfleet
from envfleet.adapters.torchrl import as_torchrl_env, make_torchrl_env

BACKENDS = ("sync", "process", "native")
MODES = ("DISABLED", "SAME_STEP")
N = 4
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def actor(env_id: str) -> Any:
    """A policy that draws its actions."""
    torch.manual_seed(0)
    with gymnasium.make(env_id) as env:
        seen, acted = env.observation_space.shape[0], env.action_space
    if isinstance(acted, gymnasium.spaces.Discrete):
        net = TensorDictModule(torch.nn.Linear(seen, int(acted.n)), in_keys=["observation"], out_keys=["logits"])
        return ProbabilisticActor(
            net,
            in_keys=["logits"],
            distribution_class=OneHotCategorical,
            default_interaction_type=InteractionType.RANDOM,
        )
    layers = torch.nn.Sequential(torch.nn.Linear(seen, 2 * acted.shape[0]), NormalParamExtractor())
    net = TensorDictModule(layers, in_keys=["observation"], out_keys=["loc", "scale"])
    return ProbabilisticActor(
        net,
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": -2.0, "high": 2.0},
        default_interaction_type=InteractionType.RANDOM,
    )


def collected(env: Any, policy: Any, frames: int = 1200, seeds: list[int] | None = None) -> TensorDict:
    env.set_seed(5) if seeds is None else env.reset(seed=seeds)
    torch.manual_seed(1)
    collector = Collector(env, policy, frames_per_batch=frames // 3, total_frames=frames)
    data = torch.stack([batch.clone() for batch in collector])
    collector.shutdown()
    return data


def assert_same(ours: TensorDict, theirs: TensorDict) -> None:
    assert set(ours.keys(True, True)) == set(theirs.keys(True, True))
    for key in theirs.keys(True, True):
        assert ours[key].dtype == theirs[key].dtype, key
        assert torch.equal(ours[key], theirs[key]), key


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("env_id", "mode"), [*product(["CartPole-v1", "LunarLander-v3"], MODES), ("Pendulum-v1", "DISABLED")]
)
@pytest.mark.usefixtures("box2d")
def test_the_same_data(env_id: str, backend: Any, mode: str) -> None:
    policy = actor(env_id)
    theirs = collected(SerialEnv(N, lambda: GymEnv(env_id)), policy)
    ours = collected(make_torchrl_env(env_id, N, backend=backend, vector_kwargs={"autoreset_mode": mode}), policy)
    assert theirs["next", "done"].any()
    assert_same(ours, theirs)
    other = collected(make_torchrl_env(env_id, N, backend="sync"), actor(env_id), 300)
    assert not torch.equal(other["observation"][0, :, 5], theirs["observation"][0, :, 6])  # so the comparison can fail


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_data_where_all_end_at_once(backend: Any) -> None:
    """In SAME_STEP mode, TorchRL then resets once more, whatever vector environment it is given."""
    policy, seeds, how = actor("Pendulum-v1"), [3, 1, 4, 15], AutoresetMode.SAME_STEP
    theirs = GymWrapper(SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1")] * N, autoreset_mode=how))
    ours = make_torchrl_env("Pendulum-v1", N, backend=backend, vector_kwargs={"autoreset_mode": how})
    data = collected(theirs, policy, seeds=seeds)
    assert data["next", "done"].any()
    assert_same(collected(ours, policy, seeds=seeds), data)


def test_the_same_data_as_in_parallel() -> None:
    policy = actor("CartPole-v1")
    theirs = collected(ParallelEnv(2, lambda: GymEnv("CartPole-v1")), policy, 300)
    assert_same(collected(make_torchrl_env("CartPole-v1", 2, backend="process"), policy, 300), theirs)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_specs(backend: Any, mode: str) -> None:
    for categorical in (False, True):
        env = make_torchrl_env(
            "CartPole-v1",
            N,
            backend=backend,
            categorical_action_encoding=categorical,
            vector_kwargs={"autoreset_mode": mode},
        )
        check_env_specs(env)
        theirs = SerialEnv(N, lambda encoding=categorical: GymEnv("CartPole-v1", categorical_action_encoding=encoding))
        assert env.action_spec == theirs.action_spec
        assert env.reward_spec == theirs.reward_spec
        assert env.observation_spec["observation"] == theirs.observation_spec["observation"]
        assert env.batch_size == theirs.batch_size == (N,)
        theirs.close(raise_if_closed=False)
        env.close()
        assert env.base_env.fleet.closed if mode == "SAME_STEP" else env.fleet.closed


@pytest.mark.parametrize("static", [False, True])
def test_seeds(static: bool) -> None:
    theirs, ours = SerialEnv(N, lambda: GymEnv("CartPole-v1")), make_torchrl_env("CartPole-v1", N, backend="sync")
    assert ours.set_seed(9, static_seed=static) == theirs.set_seed(9, static_seed=static)
    assert torch.equal(ours.reset()["observation"], theirs.reset()["observation"])
    ours.set_seed(None)
    ours.reset(seed=3)
    assert ours.fleet.np_random_seed == (3, 4, 5, 6)
    ours.close()
    theirs.close()


def test_transforms() -> None:
    ours, theirs = make_torchrl_env("CartPole-v1", N), SerialEnv(N, lambda: GymEnv("CartPole-v1"))
    both = []
    for env in (ours, theirs):
        wrapped = TransformedEnv(env, Compose(StepCounter(20)))
        wrapped.set_seed(1)
        torch.manual_seed(2)
        both.append(wrapped.rollout(50, policy=actor("CartPole-v1"), break_when_any_done=False))
        wrapped.close()
    assert both[0]["next", "truncated"].any()
    assert_same(*both)


def test_fleets_are_unaffected_by_the_start_method_of_torchrl(tmp_path: Path) -> None:
    """A script without a main guard, which spawn would run again in each worker."""
    assert multiprocessing.get_start_method() == "spawn"
    run_block(
        """
import torchrl
import multiprocessing
import gymnasium
import envfleet
assert multiprocessing.get_start_method() == "spawn"
print("once")
for context in (None, "forkserver", "fork"):
    with envfleet.make_vec(lambda: gymnasium.make("CartPole-v1"), 3, "process", {"context": context}) as envs:
        assert envs.reset(seed=0)[0].shape == (3, 4)
        assert envs.step([0, 1, 0])[0].shape == (3, 4)
""",
        tmp_path,
        PATIENCE,
        may_warn=True,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_next_step_is_refused(backend: Any) -> None:
    with (
        envfleet.make_vec("CartPole-v1", 2, backend) as envs,
        pytest.raises(ValueError, match=r"which is DISABLED; this fleet is in NEXT_STEP mode\. Make it"),
    ):
        as_torchrl_env(envs)


def test_live_observations_and_others_are_refused() -> None:
    with pytest.raises(ValueError, match="copy=False would change what it learns from"):
        make_torchrl_env("CartPole-v1", 2, vector_kwargs={"copy": False})
    with pytest.raises(TypeError, match=r"needs a fleet of envfleet.make_vec, got SyncVectorEnv"):
        as_torchrl_env(SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")], autoreset_mode=AutoresetMode.DISABLED))


@pytest.mark.parametrize("block", scripts_of("torchrl"))
def test_the_page(block: str, tmp_path: Path) -> None:
    run_block(block, tmp_path, PATIENCE, may_warn=True)
