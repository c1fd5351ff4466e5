from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiny_envs import ACTION_SPACES, ANY_SPACE, OBSERVATION_SPACES, SAME_STEP
from torch import Tensor, nn

from envfleet import make_vec
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.algorithms.td3 import TD3, actor_loss, critic_loss, critic_targets
from envfleet.train.collecting import Rollout, begin, collect
from envfleet.train.config import TD3Config
from envfleet.train.networks.exploring import NoisyTanh
from envfleet.train.networks.networks import Actor, Networks
from envfleet.wrappers import BoundedAction

CPU = torch.device("cpu")
FIGURES = ["actor_loss", "critic_loss", "q_value"]


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def make(observations: str = "vector", actions: str = "box", networks: Networks | None = None, **changes: Any) -> TD3:
    small = {"hidden_sizes": (16, 16), "batch_size": 8, "learning_starts": 0, "total_steps": 1000}
    settings = {**small, "updates_per_step": 1.0, "return_steps": 1, "normalize_rewards": False, **changes}
    return TD3(
        TD3Config(ANY_SPACE, **settings),
        Task(OBSERVATION_SPACES[observations], ACTION_SPACES[actions], 2, CPU, networks),
    )


def rollouts(learner: TD3, count: int, observations: str = "vector", actions: str = "box") -> Iterator[Rollout]:
    """As the loop collects them."""
    options = {"autoreset_mode": SAME_STEP}
    envs = make_vec(ANY_SPACE, 2, "sync", vector_kwargs=options, observations=observations, actions=actions)
    bounded = BoundedAction(envs)
    position = begin(bounded, 0)
    for _ in range(count):
        rollout = collect(bounded, learner.act, 1, position)
        position = rollout.end
        yield rollout
    bounded.close()


def updates(learner: TD3, name: str) -> int:
    (count,) = {int(state["step"]) for state in learner.optimizers[name].state.values()} or {0}
    return count


class Pair(nn.Module):
    """10 · observation + action, and 1 less."""

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        first = 10 * observations + actions
        return torch.cat([first, first - 1], -1)


class TestLosses:
    """Networks small enough to work the losses out by hand."""

    batch = Transitions(
        observations=torch.tensor([[1.0], [2.0], [3.0]]),
        actions=torch.tensor([[0.5], [-0.5], [0.0]]),
        rewards=torch.tensor([1.0, 2.0, 3.0]),
        next_observations=torch.tensor([[2.0], [3.0], [4.0]]),
        discounts=torch.tensor([0.9, 0.9, 0.81]),
        terminated=torch.tensor([0.0, 1.0, 0.0]),
    )

    @pytest.fixture
    def actor(self) -> Actor:
        """tanh(0.3), whatever it sees."""
        body = nn.Linear(1, 1)
        with torch.no_grad():
            body.weight.zero_()
            body.bias.fill_(0.3)
        return Actor(body, NoisyTanh((1,), 0.1))

    def test_targets(self, actor: Actor) -> None:
        noise = torch.tensor([[0.25], [0.0], [2.0]])
        found = critic_targets(actor, Pair(), self.batch, noise, 0.1)
        tanh = math.tanh(0.3)
        expected = [0.1 + 0.9 * (20 + tanh + 0.25 - 1), 0.2, 0.3 + 0.81 * (40 + 1 - 1)]
        torch.testing.assert_close(found, torch.tensor(expected))
        assert not found.requires_grad

    def test_both_critics_are_drawn_to_the_targets(self) -> None:
        targets = torch.tensor([9.5, 20.0, 30.0])
        loss, mean = critic_loss(Pair(), self.batch, targets)
        first = torch.tensor([10.5, 19.5, 30.0])
        errors = (first - targets).square().mean() + (first - 1 - targets).square().mean()
        assert loss.item() == pytest.approx(errors.item() / 2)
        assert mean.item() == pytest.approx(19.5)

    def test_the_actor_is_drawn_to_what_the_first_critic_likes(self, actor: Actor) -> None:
        loss = actor_loss(actor, Pair(), self.batch)
        assert loss.item() == pytest.approx(-(20 + math.tanh(0.3)))
        (gradient,) = torch.autograd.grad(loss, [actor.body.bias])  # type: ignore[list-item]
        assert gradient.item() == pytest.approx(-(1 - math.tanh(0.3) ** 2))


class TestNoisyTanh:
    def test_actions_and_their_densities(self) -> None:
        policy, outputs = NoisyTanh((2,), 0.25), torch.tensor([[0.0, 3.0]])
        torch.testing.assert_close(policy.mode(outputs), outputs.tanh())
        drawn = policy.sample(outputs.repeat(20_000, 1))
        assert drawn.abs().max() <= 1
        assert drawn[:, 0].std().item() == pytest.approx(0.25, rel=0.03)
        assert drawn[:, 0].mean().item() == pytest.approx(0.0, abs=0.01)
        actions = torch.tensor([[0.5, 0.9]])
        normal = torch.distributions.Normal(outputs.tanh(), 0.25)
        torch.testing.assert_close(policy.log_prob(outputs, actions), normal.log_prob(actions).sum(-1))
        torch.testing.assert_close(policy.entropy(outputs), normal.entropy().sum(-1))


@pytest.mark.parametrize("way", ["torch", "compiled"])
@pytest.mark.parametrize(
    ("delay", "rate", "counts"), [(2, 1.0, [1, 2, 3, 4]), (3, 1.0, [0, 1, 2, 2]), (2, 0.5, [0, 1, 1, 2])]
)
def test_the_actor_is_moved_less_often(way: Any, delay: int, rate: float, counts: list[int]) -> None:
    learner = make(policy_delay=delay, updates_per_step=rate, learner=way)
    found = []
    for rollout in rollouts(learner, 4):
        targets = [each.clone() for each in learner.modules["target_actor"].parameters()]
        before = updates(learner, "actor")
        learner.learn(rollout, 0.0)
        found.append(updates(learner, "actor"))
        stayed = all(map(torch.equal, targets, learner.modules["target_actor"].parameters()))
        assert stayed == (found[-1] == before)
    assert found == counts
    assert updates(learner, "critic") == 8 * rate


def test_targets_follow_by_a_share() -> None:
    learner = make(tau=0.25, policy_delay=2)
    (rollout,) = rollouts(learner, 1)
    before = {
        name: [each.clone() for each in learner.modules[f"target_{name}"].parameters()] for name in ("actor", "critic")
    }
    learner.learn(rollout, 0.0)
    for name, old in before.items():
        pairs = zip(
            old, learner.modules[name].parameters(), learner.modules[f"target_{name}"].parameters(), strict=True
        )
        for was, followed, new in pairs:
            torch.testing.assert_close(new, 0.75 * was + 0.25 * followed)


def test_figures() -> None:
    learner = make(policy_delay=2)
    (rollout,) = rollouts(learner, 1)
    figures = learner.learn(rollout, 0.0)
    assert list(figures) == FIGURES
    # Of two updates one was the actor's: its loss is a mean of one.
    assert figures["actor_loss"] == pytest.approx(-figures["q_value"], abs=0.5)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_noise_is_added_that_persists(correlation: float) -> None:
    learner = make(noise_correlation=correlation, exploration_noise=0.1)
    same = np.ones((2, 3), np.float32)
    actions = np.stack([learner.act(same) for _ in range(3000)])[..., 0]
    with torch.no_grad():
        expected = learner.actor.distribution.mode(learner.actor(torch.ones(1, 3)))[0, 0].item()
    assert actions.mean() == pytest.approx(expected, abs=0.02)
    assert actions[:, 0].std() == pytest.approx(0.1, rel=0.2)
    assert np.corrcoef(actions[1:, 0], actions[:-1, 0])[0, 1] == pytest.approx(correlation, abs=0.07)


def test_warm_up_is_uniform_and_learns_nothing() -> None:
    learner = make(learning_starts=400, noise_correlation=0.0)
    actions = []
    for rollout in rollouts(learner, 199):
        assert all(map(math.isnan, learner.learn(rollout, 0.0).values()))
        actions.append(rollout.actions)
    drawn = np.concatenate(actions).ravel()
    assert -1 <= drawn.min() < -0.97 < 0.97 < drawn.max() <= 1
    assert updates(learner, "critic") == 0


@pytest.mark.parametrize(
    ("actions", "others"),
    [("discrete", "DQN, A2C or PPO"), ("multi-discrete", "A2C or PPO"), ("multi-binary", "A2C or PPO")],
)
def test_other_actions_are_refused_with_what_takes_them(actions: str, others: str) -> None:
    with pytest.raises(TypeError, match=f"TD3 needs continuous actions .*; use {others}"):
        make(actions=actions)


@pytest.mark.parametrize("name", list(OBSERVATION_SPACES))
def test_every_observation_can_be_learnt_from(name: str) -> None:
    learner = make(name, normalize_observations=True)
    for rollout in rollouts(learner, 3, name):
        assert np.isfinite(learner.learn(rollout, 0.5)["critic_loss"])


@pytest.mark.parametrize("name", ["box", "box, 2-d, float64", "box, a number"])
def test_every_box_can_be_acted_in(name: str) -> None:
    learner = make(actions=name)
    for rollout in rollouts(learner, 3, actions=name):
        assert np.isfinite(learner.learn(rollout, 0.5)["critic_loss"])


def test_networks_of_ones_own_need_a_critic() -> None:
    space = OBSERVATION_SPACES["vector"]
    assert isinstance(space, spaces.Box)
    with pytest.raises(TypeError, match="needs a critic too"):
        make(networks=Networks(actor=nn.Linear(3, 2)))
    learner = make(networks=Networks(actor=nn.Linear(3, 2), critic=nn.Bilinear(3, 2, 1)))
    (rollout,) = rollouts(learner, 1)
    with pytest.raises(ValueError, match=r"TD3's critic must give \[batch, 2\]"):
        learner.learn(rollout, 0.0)
