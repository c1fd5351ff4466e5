"""Tianshou 2 on fleets: the same data and weights as on its DummyVectorEnv, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from coming_from import run_block, scripts_of
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from libraries import PATIENCE
from tianshou.algorithm import DQN, PPO
from tianshou.algorithm.algorithm_base import Policy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, VectorEnvNormObs
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step

import envfleet
from envfleet.adapters.tianshou import FleetVenv, as_venv, make_venv
from envfleet.errors import UnsupportedError

BACKENDS = ("sync", "process", "native")
N = 5


class Hashing(Policy):
    """Acts by what it sees, so that one bit of difference shows at once."""

    def forward(self, batch: Any, state: Any = None, **_: Any) -> Batch:
        seen = batch.obs if isinstance(batch.obs, np.ndarray) else np.concatenate([*batch.obs.values()], axis=1)
        mixed = np.abs(seen.astype(np.float64)).sum(axis=tuple(range(1, seen.ndim))) * 1e5
        if isinstance(self.action_space, spaces.Discrete):
            return Batch(act=mixed.astype(np.int64) % int(self.action_space.n))
        return Batch(act=np.cos(mixed)[:, None].astype(np.float32).repeat(self.action_space.shape[0], 1))


def dummy(env_id: str, num_envs: int = N) -> DummyVectorEnv:
    return DummyVectorEnv([lambda: gymnasium.make(env_id)] * num_envs)


def collected(venv: Any, **how: int) -> Batch:
    """What a collector gathers: as asked for, then some steps, then some at random."""
    venv.seed(3)
    policy = Hashing(action_space=venv.action_space[0], action_scaling=False, action_bound_method=None)
    collector = Collector[CollectStats](policy, venv, VectorReplayBuffer(3000, len(venv)))
    collector.reset()
    collector.collect(**how)
    collector.collect(n_step=10 * len(venv))
    collector.collect(n_step=10 * len(venv), random=True)
    return collector.buffer[:]


def assert_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(theirs, Batch):
        assert sorted(ours.keys()) == sorted(theirs.keys())
        for key in sorted(theirs.keys()):
            assert_same(ours[key], theirs[key])
    else:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", [{"n_step": 60 * N}, {"n_episode": 4 * N - 2}], ids=lambda how: next(iter(how)))
@pytest.mark.parametrize("env_id", ["CartPole-v1", "LunarLander-v3", "Pendulum-v1"])
@pytest.mark.usefixtures("box2d")
def test_the_same_data(env_id: str, how: dict[str, int], backend: Any) -> None:
    theirs = dummy(env_id)
    ours = make_venv(env_id, N, backend=backend)
    how = how if env_id != "Pendulum-v1" or "n_step" in how else {"n_episode": N + 2}
    assert_same(collected(ours, **how), collected(theirs, **how))
    ours.close()


class Talkative(gymnasium.Env[Any, Any]):
    """Observations are dicts; infos come and go, also at the ends of episodes, which end at different times."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(-9, 9, (2,), np.float32), "time": spaces.Box(0, 99, (1,), np.int64)}
    )

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(3)  # of its own: Tianshou seeds that of each environment

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.time, self.length = 0, int(self.np_random.integers(2, 9))
        return self._seen(), {"began": self.length, "options": options is None}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        self.time += 1
        done = self.time == self.length
        info = {"action": int(action), "nested": {"half": self.time / 2}}
        return self._seen(), float(action), done, done and self.length % 2 == 0, info

    def _seen(self) -> Any:
        return {"place": self.np_random.random(2).astype(np.float32), "time": np.array([self.time])}


@pytest.mark.parametrize("how", [{"n_step": 20 * N}, {"n_episode": 4 * N - 2}], ids=lambda how: next(iter(how)))
@pytest.mark.parametrize("backend", ["sync", "process"])
def test_the_same_data_with_dicts_and_infos(backend: Any, how: dict[str, int]) -> None:
    ours = make_venv(Talkative, N, backend=backend)
    assert_same(collected(ours, **how), collected(DummyVectorEnv([Talkative] * N), **how))
    ours.close()


# -- weights ------------------------------------------------------------------------------------------


def ppo(training: Any, test: Any) -> PPO:
    net = Net(state_shape=(4,), hidden_sizes=[16])
    actor, critic = DiscreteActor(preprocess_net=net, action_shape=2), DiscreteCritic(preprocess_net=net)
    policy = DiscreteActorPolicy(actor=actor, action_space=spaces.Discrete(2))
    algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3))
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=Collector[CollectStats](algorithm, training, VectorReplayBuffer(600, len(training))),
            test_collector=Collector[CollectStats](algorithm, test),
            max_epochs=2,
            epoch_num_steps=200,
            collection_step_num_env_steps=100,
            test_step_num_episodes=3,
            update_step_num_repetitions=2,
            batch_size=50,
            verbose=False,
            show_progress=False,
        )
    )
    return algorithm


def ppo_by_episodes(training: Any, test: Any) -> PPO:
    algorithm = ppo(training, test)
    collector = Collector[CollectStats](algorithm, training, VectorReplayBuffer(3000, len(training)))
    collector.reset()
    with policy_within_training_step(algorithm.policy):
        collector.collect(n_episode=2 * len(training) + 1)
        algorithm.update(buffer=collector.buffer, batch_size=50, repeat=2)
    return algorithm


def dqn(training: Any, test: Any) -> DQN:
    net = Net(state_shape=(4,), action_shape=2, hidden_sizes=[16])
    policy = DiscreteQLearningPolicy(
        model=net,
        action_space=spaces.Discrete(2),
        observation_space=gymnasium.make("CartPole-v1").observation_space,
        eps_training=0.3,
        eps_inference=0.05,
    )
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=20)
    buffer = VectorReplayBuffer(2000, len(training))
    collector = Collector[CollectStats](algorithm, training, buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=20 * len(training))
    algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            test_collector=Collector[CollectStats](algorithm, test, exploration_noise=True),
            max_epochs=2,
            epoch_num_steps=200,
            collection_step_num_env_steps=20,
            test_step_num_episodes=3,
            update_step_num_gradient_steps_per_sample=0.1,
            batch_size=32,
            verbose=False,
            show_progress=False,
        )
    )
    return algorithm


def weights(train: Callable[[Any, Any], Any], training: Any, test: Any, seed: int = 1) -> dict[str, torch.Tensor]:
    np.random.seed(0)
    torch.manual_seed(0)
    training.seed(seed)
    test.seed(2)
    algorithm = train(training, test)
    training.close()
    test.close()
    return {name: value for name, value in algorithm.state_dict().items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("train", [ppo, ppo_by_episodes, dqn])
def test_the_same_weights(train: Callable[[Any, Any], Any]) -> None:
    theirs = weights(train, dummy("CartPole-v1"), dummy("CartPole-v1", 2))
    for backend in BACKENDS:
        ours = weights(
            train, make_venv("CartPole-v1", N, backend=backend), make_venv("CartPole-v1", 2, backend=backend)
        )
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs), backend
    other = weights(train, dummy("CartPole-v1"), dummy("CartPole-v1", 2), seed=7)
    assert not all(torch.equal(other[name], theirs[name]) for name in theirs)  # so the comparison can fail


# -- the interface ------------------------------------------------------------------------------------


@pytest.fixture(params=BACKENDS)
def pair(request: pytest.FixtureRequest) -> Any:
    ours, theirs = make_venv("CartPole-v1", N, backend=request.param), dummy("CartPole-v1")
    yield ours, theirs
    for venv in (ours, theirs):
        if not venv.is_closed:
            venv.close()


def test_an_int_seeds_all_alike_in_reset_and_one_after_another_in_seed(pair: Any) -> None:
    ours, theirs = pair
    for ask in (
        lambda venv: venv.reset(seed=4)[0],
        lambda venv: venv.reset([3, 1], seed=8)[0],
        lambda venv: np.array(venv.seed(5)),
        lambda venv: venv.reset()[0],
        lambda venv: np.array(venv.seed([9, 8, 7, 6, 5])),
        lambda venv: venv.reset(2)[0],
        lambda venv: np.array([space.sample() for space in venv.action_space]),
    ):
        np.testing.assert_array_equal(ask(ours), ask(theirs), strict=True)
    assert (ours.reset(seed=4)[0] == ours.reset(seed=4)[0][0]).all()


def test_results_are_in_the_order_of_id(pair: Any) -> None:
    ours, theirs = pair
    for venv in pair:
        venv.seed(0)
    for ids in ([4, 0, 2], np.array([3]), [1, 2, 3, 4], 2, None):
        count = N if ids is None else np.size(ids)
        actions = np.arange(count) % 2
        ours_got, theirs_got = ours.step(actions, ids), theirs.step(actions, ids)
        for mine, other in zip(ours_got[:4], theirs_got[:4], strict=True):
            np.testing.assert_array_equal(mine, other, strict=True)
        assert [dict(info) for info in ours_got[4]] == [dict(info) for info in theirs_got[4]]
        assert isinstance(ours_got[4], np.ndarray)
    observations, infos = ours.reset([4, 1])
    assert observations.shape == (2, 4)
    assert infos.tolist() == [{}, {}]


def test_what_tianshou_asks_for(pair: Any) -> None:
    ours, theirs = pair
    assert len(ours) == ours.env_num == N
    assert ours.action_space == theirs.action_space
    assert ours.observation_space == theirs.observation_space
    assert [spec.id for spec in ours.spec] == [spec.id for spec in theirs.spec]
    assert ours.metadata == theirs.metadata
    assert ours.get_env_attr("gravity") == theirs.get_env_attr("gravity")
    assert ours.get_env_attr("gravity", 1) == [9.8]
    assert (ours.is_async, ours.waiting_id, ours.ready_id) == (theirs.is_async, theirs.waiting_id, theirs.ready_id)
    ours.set_env_attr("gravity", 5.0, [0, 2])
    assert ours.get_env_attr("gravity") == [5.0, 9.8, 5.0, 9.8, 9.8]
    ours.close()
    assert ours.is_closed
    assert ours.fleet.closed
    with pytest.raises(AssertionError, match="after close"):
        ours.step(np.zeros(N, np.int64))


def test_attributes_are_those_inside_the_wrappers() -> None:
    venv = make_venv("CartPole-v1", 2, backend="process")
    venv.set_env_attr("remark", [1, 2])
    assert venv.get_env_attr("remark") == [[1, 2], [1, 2]]
    assert dummy("CartPole-v1", 1).get_env_attr("kinematics_integrator") == venv.get_env_attr(
        "kinematics_integrator", 0
    )
    venv.close()


def test_frames(pair: Any) -> None:
    ours = make_venv("CartPole-v1", 2, backend="sync", env_kwargs={"render_mode": "rgb_array"})
    ours.seed(0)
    assert [frame.shape for frame in ours.render()] == [(400, 600, 3)] * 2
    ours.close()


def test_normalised_observations(pair: Any) -> None:
    ours, theirs = (VectorEnvNormObs(venv) for venv in pair)
    for venv in (ours, theirs):
        venv.seed(0)
        venv.reset()
    for _ in range(5):
        actions = np.ones(N, np.int64)
        np.testing.assert_array_equal(ours.step(actions)[0], theirs.step(actions)[0])
    np.testing.assert_array_equal(ours.get_obs_rms().mean, theirs.get_obs_rms().mean)


def test_actions_of_any_kind(pair: Any) -> None:
    ours, theirs = pair
    for actions in ([1, 0, 1, 0, 1], torch.ones(N, dtype=torch.int64), np.ones(N), np.ones(N, np.int32)):
        ours.seed(0)
        theirs.seed(0)
        given = actions.numpy() if isinstance(actions, torch.Tensor) else np.asarray(actions).astype(np.int64)
        np.testing.assert_array_equal(ours.step(actions)[0], theirs.step(given)[0])
    with pytest.raises(ValueError, match="one action per environment: 5, got 2"):
        ours.step(np.ones(2))
    with pytest.raises(ValueError, match="needs actions"):
        ours.step(None)


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_other_modes_are_refused(mode: AutoresetMode) -> None:
    with (
        envfleet.make_vec("CartPole-v1", 2, autoreset_mode=mode) as envs,
        pytest.raises(ValueError, match=f"which is DISABLED; this fleet is in {mode.name} mode. Make it with"),
    ):
        as_venv(envs)
    with pytest.raises(ValueError, match="which is DISABLED"):
        make_venv("CartPole-v1", 2, vector_kwargs={"autoreset_mode": mode})


def test_live_observations_tuples_and_others_are_refused() -> None:
    with pytest.raises(ValueError, match="copy=False would change what it learns from"):
        make_venv("CartPole-v1", 2, vector_kwargs={"copy": False})
    with pytest.raises(UnsupportedError, match="takes no tuples"):
        make_venv("Blackjack-v1", 2)
    with pytest.raises(TypeError, match=r"needs a fleet of envfleet.make_vec, got SyncVectorEnv"):
        as_venv(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"))
    with pytest.raises(ValueError, match="timeout must be more than 0"):
        make_venv("CartPole-v1", 2, timeout=0)


def test_a_fleet_of_ones_own() -> None:
    envs = envfleet.SyncVectorEnv([Talkative] * 3, autoreset_mode="DISABLED", first_ready=2)
    venv = as_venv(envs)
    assert isinstance(venv, FleetVenv)
    assert venv.fleet is envs
    assert venv.wait_num == 2
    assert venv.is_async
    venv.close()


@pytest.mark.parametrize("block", scripts_of("tianshou"))
def test_the_page(block: str, tmp_path: Path) -> None:
    run_block(block, tmp_path, PATIENCE, may_warn=True)
