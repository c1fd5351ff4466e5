from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiny_envs import ACTION_SPACES, ANY_SPACE, NESTED_ACTION_SPACES, OBSERVATION_SPACES, SAME_STEP
from torch import Tensor, nn

from envfleet import make_vec
from envfleet.train.algorithms.dqn import DQN, value_loss, value_targets
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.collecting import Rollout, begin, collect
from envfleet.train.config import DQNConfig
from envfleet.train.networks.exploring import EpsilonGreedy
from envfleet.train.networks.networks import Actor, DuelingPerceptron, Layout, Networks

CPU = torch.device("cpu")
FIGURES = ["critic_loss", "q_value", "epsilon"]


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def make(observations: str = "vector", networks: Networks | None = None, **changes: Any) -> DQN:
    small = {"hidden_sizes": (16, 16), "batch_size": 8, "learning_starts": 0, "total_steps": 1000}
    settings = {**small, "updates_per_step": 1.0, "return_steps": 1, "normalize_rewards": False, **changes}
    task = Task(OBSERVATION_SPACES[observations], ACTION_SPACES["discrete"], 2, CPU, networks)
    return DQN(DQNConfig(ANY_SPACE, **settings), task)


def rollouts(learner: DQN, count: int, observations: str = "vector") -> Iterator[Rollout]:
    """As the loop collects them."""
    options = {"autoreset_mode": SAME_STEP}
    envs = make_vec(ANY_SPACE, 2, "sync", vector_kwargs=options, observations=observations, actions="discrete")
    position = begin(envs, 0)
    for _ in range(count):
        rollout = collect(envs, learner.act, 1, position)
        position = rollout.end
        yield rollout
    envs.close()


class Values(nn.Module):
    """Of an observation x: the values of three choices, x, 2 - x and `last`."""

    def __init__(self, last: float = 0.5) -> None:
        super().__init__()
        self.last = nn.Parameter(torch.tensor(last))

    def forward(self, observations: Tensor) -> Tensor:
        return torch.cat([observations, 2 - observations, self.last.expand(len(observations), 1)], -1)


BATCH = Transitions(
    observations=torch.tensor([[1.0], [2.0], [0.25]]),
    actions=torch.tensor([[7.0], [5.0], [6.0]]),
    rewards=torch.tensor([1.0, 2.0, 3.0]),
    next_observations=torch.tensor([[2.0], [3.0], [0.75]]),
    discounts=torch.tensor([0.9, 0.9, 0.81]),
    terminated=torch.tensor([0.0, 1.0, 0.0]),
)


class TestLosses:
    """Networks small enough to work the losses out by hand."""

    actor = Actor(Values(), EpsilonGreedy(3, 5, 0.1))

    def test_the_target_values_its_own_best_choice(self) -> None:
        target = Actor(Values(last=10.0), EpsilonGreedy(3, 5, 0.1))
        found = value_targets(self.actor, target, BATCH, 0.1, double=False)
        torch.testing.assert_close(found, torch.tensor([0.1 + 0.9 * 10, 0.2, 0.3 + 0.81 * 10]))
        assert not found.requires_grad

    def test_double_values_the_choice_of_the_network_itself(self) -> None:
        target = Actor(Values(last=10.0), EpsilonGreedy(3, 5, 0.1))
        found = value_targets(self.actor, target, BATCH, 0.1, double=True)
        torch.testing.assert_close(found, torch.tensor([0.1 + 0.9 * 2, 0.2, 0.3 + 0.81 * 1.25]))

    def test_the_value_of_what_was_done_is_drawn_to_its_target_as_far_as_huber_goes(self) -> None:
        targets = torch.tensor([0.75, 5.0, 1.75])
        loss, errors, mean = value_loss(self.actor, BATCH, targets)
        # Values of the choices 7, 5 and 6, which are the third, the first and the second.
        torch.testing.assert_close(errors, torch.tensor([-0.25, -3.0, 0.0]))
        assert loss.item() == pytest.approx((0.5 * 0.25**2 + 2.5) / 3)
        assert mean.item() == pytest.approx((0.5 + 2 + 1.75) / 3)

    def test_weights_count(self) -> None:
        targets, weights = torch.tensor([0.75, 5.0, 1.75]), torch.tensor([1.0, 0.5, 0.1])
        loss, _, _ = value_loss(self.actor, Transitions(**{**vars(BATCH), "weights": weights}), targets)
        assert loss.item() == pytest.approx((0.5 * 0.25**2 + 0.5 * 2.5) / 3)


class TestEpsilonGreedy:
    values = torch.tensor([[0.0, 2.0, 1.0], [3.0, -math.inf, 1.0]])

    def test_the_best_and_now_and_then_any(self) -> None:
        policy = EpsilonGreedy(3, 5, 0.3)
        assert policy.mode(self.values).tolist() == [6, 5]
        drawn = policy.sample(self.values.repeat(20_000, 1)).reshape(-1, 2)
        shares = [np.bincount(column - 5, minlength=3) / 20_000 for column in drawn.numpy().T]
        np.testing.assert_allclose(shares, [[0.1, 0.8, 0.1], [0.85, 0, 0.15]], atol=0.012)
        for column, share in enumerate(shares):
            for choice in range(3):
                found = policy.log_prob(self.values[column : column + 1], torch.tensor([5 + choice])).exp().item()
                assert found == pytest.approx(share[choice], abs=0.012)
        entropy = -(0.8 * math.log(0.8) + 0.2 * math.log(0.1))
        assert policy.entropy(self.values)[0].item() == pytest.approx(entropy, rel=1e-5)

    def test_what_is_forbidden_is_never_done(self) -> None:
        policy = EpsilonGreedy(3, 0, 1.0)
        assert 1 not in policy.sample(self.values[1:].repeat(1000, 1)).tolist()


class TestDueling:
    def test_advantages_are_about_their_mean(self) -> None:
        space = OBSERVATION_SPACES["vector"]
        network = DuelingPerceptron(space, 4, Layout((8, 6), "relu", normalize=False), last_gain=1.0)
        seen = torch.randn(5, 3)
        shared = network._shared(seen)
        values, advantages = network._value(shared), network._advantages(shared)
        torch.testing.assert_close(network(seen), values + advantages - advantages.mean(-1, keepdim=True))
        torch.testing.assert_close(network(seen).mean(-1, keepdim=True), values)

    @pytest.mark.parametrize("hidden", [(), (8,), (8, 8, 8)])
    @pytest.mark.parametrize("observations", ["vector", "image, channels last", "dict"])
    def test_it_takes_any_observations_and_learns(self, observations: str, hidden: tuple[int, ...]) -> None:
        learner = make(observations, dueling=True, hidden_sizes=hidden)
        before = copy.deepcopy(learner.actor.state_dict())
        for rollout in rollouts(learner, 3, observations):
            learner.learn(rollout, 0.5)
        assert any(not torch.equal(before[name], each) for name, each in learner.actor.state_dict().items())


def test_random_actions_become_rarer() -> None:
    learner = make(learning_starts=100, total_steps=1000, exploration_share=0.5, final_epsilon=0.1)
    found = []
    for rollout in rollouts(learner, 400):
        found.append(learner.epsilon)
        learner.learn(rollout, 0.0)
    at = dict(zip(range(0, 800, 2), found, strict=True))
    assert at[0] == at[98] == at[100] == 1.0
    assert at[350] == pytest.approx(0.55)
    assert at[600] == at[798] == 0.1


def test_warm_up_is_uniform_and_learns_nothing() -> None:
    learner = make(learning_starts=400)
    before = copy.deepcopy(learner.actor.state_dict())
    actions = []
    for rollout in rollouts(learner, 199):
        figures = learner.learn(rollout, 0.0)
        assert list(figures) == FIGURES
        assert all(map(math.isnan, figures.values()))
        actions.append(rollout.actions)
    counts = np.bincount(np.concatenate(actions).ravel(), minlength=5)
    assert counts[:2].tolist() == [0, 0]
    assert counts[2:].min() > 100
    assert all(torch.equal(before[name], each) for name, each in learner.actor.state_dict().items())


def test_figures() -> None:
    learner = make(final_epsilon=0.2, exploration_share=0.0)
    (rollout,) = rollouts(learner, 1)
    figures = learner.learn(rollout, 0.0)
    assert list(figures) == FIGURES
    assert np.isfinite(list(figures.values())).all()
    assert figures["epsilon"] == pytest.approx(0.2)


def test_the_target_follows_by_a_share() -> None:
    learner = make(tau=0.25, updates_per_step=0.5)
    (rollout,) = rollouts(learner, 1)
    before = [each.clone() for each in learner.modules["target_actor"].parameters()]
    learner.learn(rollout, 0.0)
    pairs = zip(before, learner.actor.parameters(), learner.modules["target_actor"].parameters(), strict=True)
    for old, network, new in pairs:
        torch.testing.assert_close(new, 0.75 * old + 0.25 * network)


@pytest.mark.parametrize("way", ["torch", "compiled"])
def test_what_is_badly_known_is_drawn_more_often(way: Any) -> None:
    learner = make(priority_exponent=1.0, learner=way, learning_starts=20, updates_per_step=2.0)
    for rollout in rollouts(learner, 60):
        learner.learn(rollout, 0.5)
    priorities = learner.replay.tensors()["priorities"]
    assert len(priorities) == 120
    assert len(priorities.unique()) > 60
    assert learner.correction(0.0) == 0.4
    assert learner.correction(1.0) == 1.0


@pytest.mark.parametrize("name", [name for name in ACTION_SPACES if name != "discrete"] + list(NESTED_ACTION_SPACES))
def test_other_actions_are_refused_with_what_takes_them(name: str) -> None:
    space = {**ACTION_SPACES, **NESTED_ACTION_SPACES}[name]
    others = "SAC, TD3, A2C or PPO" if isinstance(space, spaces.Box) else "A2C or PPO"
    with pytest.raises(TypeError, match=f"(?s)DQN needs actions that are one choice.*; use {others}, which take it"):
        DQN(DQNConfig(ANY_SPACE), Task(OBSERVATION_SPACES["vector"], space, 2, CPU))


@pytest.mark.parametrize("name", list(OBSERVATION_SPACES))
def test_every_observation_can_be_learnt_from(name: str) -> None:
    learner = make(name, normalize_observations=True)
    for rollout in rollouts(learner, 3, name):
        assert np.isfinite(learner.learn(rollout, 0.5)["critic_loss"])


def test_a_network_of_ones_own_is_taken_and_a_critic_is_not() -> None:
    body = nn.Linear(3, 3)
    learner = make(networks=Networks(actor=body))
    assert learner.actor.body is body
    for rollout in rollouts(learner, 2):
        learner.learn(rollout, 0.5)
    with pytest.raises(TypeError, match=r"DQN has one network.*Networks\(actor=...\), no critic"):
        make(networks=Networks(actor=body, critic=nn.Linear(3, 1)))


class Masked(nn.Module):
    """A network of one's own that forbids the second choice, wherever the first number is positive."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Linear(3, 3)

    def forward(self, observations: Tensor) -> Tensor:
        forbidden = (observations[:, :1] > 0) & torch.tensor([False, True, False])
        values: Tensor = torch.where(forbidden, -torch.inf, self.values(observations))
        return values


@pytest.mark.parametrize("double", [True, False])
def test_masks_of_ones_own_networks_are_kept_to(double: bool) -> None:
    learner = make(networks=Networks(actor=Masked()), double=double, final_epsilon=0.5, return_steps=3)
    for rollout in rollouts(learner, 100):
        seen = rollout.observations
        assert isinstance(seen, np.ndarray)
        assert not (rollout.actions[seen[..., 0] > 0] == 3).any()
        assert np.isfinite(learner.learn(rollout, 0.5)["critic_loss"])
