from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from envfleet.train.algorithms.a2c import A2C, actor_loss
from envfleet.train.algorithms.learner import Batch, Task, critic_loss
from envfleet.train.collecting import Rollout, begin, collect
from envfleet.train.config import A2CConfig
from envfleet.train.networks.distributions import distribution_for
from envfleet.train.networks.networks import Actor, Critic, Networks

CPU = torch.device("cpu")
OBSERVATIONS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
BATCH = Batch(OBSERVATIONS, torch.tensor([0, 1, 1]), torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0]), 0.0)


def linear(rows: list[list[float]]) -> nn.Linear:
    layer = nn.Linear(len(rows[0]), len(rows), bias=False)
    layer.weight.data = torch.tensor(rows)
    return layer


def test_the_critic_s_loss_is_half_the_mean_squared_error() -> None:
    critic = Critic(linear([[1.0, 3.0]]))
    assert critic_loss(critic, BATCH).item() == pytest.approx(0.5 * (1 + 1 + 1) / 3)


def test_the_actor_s_loss() -> None:
    actor = Actor(linear([[0.0, 0.0], [1.0, -1.0]]), distribution_for(spaces.Discrete(2)))
    probabilities = torch.softmax(torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), -1).double()
    chosen = torch.stack([probabilities[0, 0], probabilities[1, 1], probabilities[2, 1]])
    surrogate = -(BATCH.advantages * chosen.log()).mean()
    entropy = -(probabilities * probabilities.log()).sum(-1).mean()
    loss, mean_entropy = actor_loss(actor, BATCH, BATCH.advantages, 0.1)
    assert mean_entropy.item() == pytest.approx(entropy.item())
    assert loss.item() == pytest.approx((surrogate - 0.1 * entropy).item())


def rollout(learner: Any, steps: int = 8) -> Rollout:
    envs = gym.make_vec("CartPole-v1", 2, "sync", vector_kwargs={"autoreset_mode": "SameStep"})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = collect(envs, learner.act, steps, begin(envs, 0))
    envs.close()
    return found


def make(networks: Networks | None = None, **changes: Any) -> A2C:
    env = gym.make("CartPole-v1")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return A2C(
            A2CConfig("CartPole-v1", learner="torch", **changes),
            Task(env.observation_space, env.action_space, 2, CPU, networks),
        )


def rate(learner: A2C, name: str) -> float:
    return learner.optimizers[name].param_groups[0]["lr"]  # type: ignore[no-any-return]


def steps_taken(learner: A2C, name: str) -> int:
    (count,) = {int(state["step"]) for state in learner.optimizers[name].state.values()}
    return count


def test_one_step_of_the_actor_and_several_of_the_critic() -> None:
    learner = make(critic_updates=5)
    learner.learn(rollout(learner), 0.0)
    assert (steps_taken(learner, "actor"), steps_taken(learner, "critic")) == (1, 5)


def test_figures() -> None:
    learner = make(actor_lr=1e-3)
    figures = learner.learn(rollout(learner), 0.25)
    assert list(figures) == ["actor_loss", "critic_loss", "entropy", "learning_rate", "explained_variance"]
    assert all(np.isfinite(list(figures.values())))
    assert figures["entropy"] == pytest.approx(np.log(2), abs=1e-3)
    assert figures["learning_rate"] == pytest.approx(0.75 * 1e-3)


def test_step_sizes_and_entropy_bonus_fall_to_0() -> None:
    learner = make(actor_lr=0.1, critic_lr=0.2)
    data = rollout(learner)
    for progress in (0.0, 0.5, 0.9):
        learner.learn(data, progress)
        assert rate(learner, "actor") == pytest.approx(0.1 * (1 - progress))
        assert rate(learner, "critic") == pytest.approx(0.2 * (1 - progress))
    before = [parameter.clone() for parameter in learner.actor.parameters()]
    learner.learn(data, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.actor.parameters(), strict=True))


def test_or_stay() -> None:
    learner = make(actor_lr=0.1, anneal=False)
    learner.learn(rollout(learner), 0.9)
    assert rate(learner, "actor") == pytest.approx(0.1)


def gradient(**changes: Any) -> torch.Tensor:
    """The actor's gradient in the first update, before Adam makes of it what it likes."""
    learner = make(max_grad_norm=0.0, **changes)
    learner.learn(rollout(learner), 0.0)
    return torch.cat([parameter.grad.ravel() for parameter in learner.actor.parameters()])  # type: ignore[union-attr]


def test_normalised_advantages_know_no_scale() -> None:
    torch.testing.assert_close(
        gradient(reward_scale=1e3, gae_lambda=1.0, entropy_coef=0.0),
        gradient(reward_scale=1e5, gae_lambda=1.0, entropy_coef=0.0),
        rtol=0.02,
        atol=1e-3,
    )


def test_advantages_as_they_are_do() -> None:
    changes: dict[str, Any] = {"gae_lambda": 1.0, "entropy_coef": 0.0, "normalize_advantages": False}
    small, large = gradient(reward_scale=1e3, **changes), gradient(reward_scale=1e5, **changes)
    assert large.norm() / small.norm() == pytest.approx(100, rel=0.05)


def test_the_entropy_bonus_points_to_chance() -> None:
    """With no reward to speak of, a certain policy becomes less so."""
    certain = linear([[5.0] * 4, [-5.0] * 4])
    learner = make(Networks(certain, nn.Linear(4, 1)), entropy_coef=1.0, normalize_advantages=False, reward_scale=1e-9)
    data = rollout(learner)
    entropies = [learner.learn(data, 0.0)["entropy"] for _ in range(5)]
    assert entropies == sorted(entropies)
    assert entropies[-1] > entropies[0]


def test_an_action_that_paid_becomes_likelier() -> None:
    learner = make(
        actor_lr=2e-3, critic_lr=3e-3, critic_updates=8, entropy_coef=0.0, gamma=0.0, normalize_observations=False
    )
    data = rollout(learner)
    data.rewards[:] = data.actions
    for _ in range(20):
        learner.learn(data, 0.0)
    observations = data.observations.reshape(-1, 4)  # type: ignore[union-attr]
    chances = torch.softmax(learner.actor(torch.from_numpy(observations)), -1)[:, 1]
    assert chances.mean() > 0.6


def test_acting_leaves_no_graph_and_no_statistics() -> None:
    learner = make(normalize_observations=True)
    actions = learner.act(np.ones((2, 4), np.float32))
    assert actions.shape == (2,)
    assert actions.dtype == np.int64
    assert learner.actor.state_dict()["body.encoder.normalizer.count"] == 0
