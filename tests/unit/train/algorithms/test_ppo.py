from __future__ import annotations

import math
from itertools import chain
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from envfleet.train.algorithms.learner import Batch, Task
from envfleet.train.algorithms.ppo import PPO, PolicyLoss, actor_loss
from envfleet.train.collecting import Rollout, begin, collect
from envfleet.train.config import PPOConfig
from envfleet.train.networks.distributions import distribution_for
from envfleet.train.networks.networks import Actor

CPU = torch.device("cpu")
CLIP = 0.2


class Logits(nn.Module):
    """Two actions whose log-odds are the observation."""

    def forward(self, observations: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(observations), observations], -1)


def chance(action: int, log_odds: float) -> float:
    up = 1 / (1 + math.exp(-log_odds))
    return up if action else 1 - up


def loss_for(rows: list[tuple[float, int, float, float]], entropy_coef: float = 0.0) -> PolicyLoss:
    """Rows of log-odds, action, advantage and probability ratio."""
    odds, actions, advantages, ratios = zip(*rows, strict=True)
    observations = torch.tensor(odds).unsqueeze(-1).requires_grad_()
    old = torch.tensor([math.log(chance(a, o) / r) for a, o, r in zip(actions, odds, ratios, strict=True)])
    batch = Batch(observations, torch.tensor(actions), torch.tensor(advantages), torch.zeros(len(rows)), 0.0)
    actor = Actor(Logits(), distribution_for(spaces.Discrete(2)))
    return actor_loss(actor, batch, batch.advantages, old, CLIP, entropy_coef)


@pytest.mark.parametrize(
    ("advantage", "ratio", "surrogate"),
    [
        (2.0, 1.0, 2.0),
        (2.0, 1.1, 2.2),
        (2.0, 1.5, 2.4),  # gained enough
        (2.0, 0.5, 1.0),  # may come back
        (-2.0, 1.5, -3.0),  # must come back
        (-2.0, 0.5, -1.6),  # lost enough
    ],
)
def test_the_clipped_surrogate(advantage: float, ratio: float, surrogate: float) -> None:
    assert loss_for([(0.3, 1, advantage, ratio)]).loss.item() == pytest.approx(-surrogate)


@pytest.mark.parametrize(("advantage", "ratio", "pushed"), [(2.0, 1.5, False), (2.0, 0.5, True), (-2.0, 0.5, False)])
def test_beyond_the_clip_there_is_no_gradient(advantage: float, ratio: float, pushed: bool) -> None:
    odds = torch.tensor([[0.3]], requires_grad=True)
    old = torch.tensor([math.log(chance(1, 0.3) / ratio)])
    batch = Batch(odds, torch.tensor([1]), torch.tensor([advantage]), torch.zeros(1), 0.0)
    actor = Actor(Logits(), distribution_for(spaces.Discrete(2)))
    actor_loss(actor, batch, batch.advantages, old, CLIP, 0.0).loss.backward()  # type: ignore[no-untyped-call]
    assert odds.grad is not None
    assert bool(odds.grad.abs().sum() > 0) == pushed


def test_figures_of_the_loss() -> None:
    rows = [(0.0, 1, 1.0, 1.0), (1.0, 0, -1.0, 1.1), (2.0, 1, 3.0, 1.3), (-1.0, 0, 1.0, 0.7)]
    found = loss_for(rows, entropy_coef=0.5)
    entropies = [-sum(chance(a, odds) * math.log(chance(a, odds)) for a in (0, 1)) for odds, *_ in rows]
    assert found.entropy.item() == pytest.approx(np.mean(entropies))
    assert found.clip_fraction.item() == pytest.approx(0.5)
    assert found.approx_kl.item() == pytest.approx(np.mean([r - 1 - math.log(r) for *_, r in rows]))
    surrogates = [1.0, -1.1, 3 * 1.2, 0.7]
    assert found.loss.item() == pytest.approx(-np.mean(surrogates) - 0.5 * np.mean(entropies))


def make(**changes: Any) -> PPO:
    env = gym.make("CartPole-v1")
    settings = {"hidden_sizes": (16,), "target_kl": 0.0, "epochs": 3, "minibatch_size": 4, **changes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return PPO(
            PPOConfig("CartPole-v1", learner="torch", **settings), Task(env.observation_space, env.action_space, 2, CPU)
        )


def rollout(learner: PPO, steps: int = 8) -> Rollout:
    envs = gym.make_vec("CartPole-v1", 2, "sync", vector_kwargs={"autoreset_mode": "SameStep"})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found = collect(envs, learner.act, steps, begin(envs, 0))
    envs.close()
    return found


def steps_taken(learner: PPO, name: str) -> int:
    (count,) = {int(state["step"]) for state in learner.optimizers[name].state.values()}
    return count


@pytest.mark.parametrize(("minibatch_size", "minibatches"), [(4, 4), (5, 4), (16, 1), (1000, 1)])
def test_every_epoch_goes_over_all_rows_once(minibatch_size: int, minibatches: int) -> None:
    learner = make(minibatch_size=minibatch_size)
    seen: list[list[float]] = []
    step = learner._step

    def watched(batch: Batch, *rest: Any) -> Tensor:
        assert isinstance(batch.observations, Tensor)
        seen.append(batch.observations[:, 3].tolist())
        return step(batch, *rest)

    learner._step = watched  # type: ignore[method-assign]
    data = rollout(learner)
    figures = learner.learn(data, 0.0)
    assert figures["epochs"] == 3
    assert steps_taken(learner, "actor") == steps_taken(learner, "critic") == len(seen) == 3 * minibatches
    everything = sorted(data.observations[..., 3].ravel().tolist())  # type: ignore[call-overload]
    epochs = [list(chain(*seen[i : i + minibatches])) for i in range(0, len(seen), minibatches)]
    assert [sorted(epoch) for epoch in epochs] == [everything] * 3
    assert minibatches == 1 or epochs[0] != epochs[1]


@pytest.mark.parametrize(("minibatch_size", "sizes"), [(4, [4] * 4), (5, [4] * 4), (7, [6, 5, 5]), (15, [8, 8])])
def test_no_few_rows_are_left_over_for_a_step_of_their_own(minibatch_size: int, sizes: list[int]) -> None:
    learner = make(minibatch_size=minibatch_size, epochs=1)
    seen: list[int] = []
    step = learner._step

    def watched(batch: Batch, *rest: Any) -> Tensor:
        seen.append(len(batch))
        return step(batch, *rest)

    learner._step = watched  # type: ignore[method-assign]
    learner.learn(rollout(learner), 0.0)
    assert seen == sizes


def test_minibatches_of_one_row_do_no_harm() -> None:
    learner = make(minibatch_size=1)
    figures = learner.learn(rollout(learner), 0.0)
    assert np.isfinite(list(figures.values())).all()
    assert all(torch.isfinite(parameter).all() for parameter in learner.actor.parameters())


def test_the_divergence_told_is_that_of_the_last_epoch() -> None:
    learner = make(actor_lr=0.1, epochs=5)
    found: list[float] = []
    epoch = learner._epoch

    def watched(*given: Any) -> dict[str, float]:
        metrics = epoch(*given)
        found.append(metrics["approx_kl"])
        return metrics

    learner._epoch = watched  # type: ignore[method-assign]
    assert learner.learn(rollout(learner), 0.0)["approx_kl"] == found[-1] != np.mean(found)


def test_epochs_stop_once_the_policy_has_moved_far_enough() -> None:
    far = make(actor_lr=0.1, target_kl=1e-6, epochs=9)
    assert far.learn(rollout(far), 0.0)["epochs"] == 1
    never = make(actor_lr=0.1, target_kl=0.0, epochs=9)
    figures = never.learn(rollout(never), 0.0)
    assert figures["epochs"] == 9
    assert figures["approx_kl"] > 1e-6


def test_figures() -> None:
    learner = make(actor_lr=0.1)
    figures = learner.learn(rollout(learner), 0.25)
    names = ["actor_loss", "critic_loss", "entropy", "approx_kl", "clip_fraction", "epochs"]
    assert list(figures) == [*names, "learning_rate", "explained_variance"]
    assert np.isfinite(list(figures.values())).all()
    assert figures["learning_rate"] == pytest.approx(0.075)
    assert 0 < figures["clip_fraction"] < 1


def test_the_first_minibatch_finds_the_policy_where_it_was() -> None:
    learner = make(minibatch_size=1000, epochs=1)
    figures = learner.learn(rollout(learner), 0.0)
    assert figures["approx_kl"] == pytest.approx(0, abs=1e-9)
    assert figures["clip_fraction"] == 0


@pytest.mark.parametrize(("anneal", "rate"), [(True, 0.05), (False, 0.1)])
def test_step_sizes_fall_or_stay(anneal: bool, rate: float) -> None:
    learner = make(actor_lr=0.1, critic_lr=0.1, anneal=anneal)
    learner.learn(rollout(learner), 0.5)
    for optimizer in learner.optimizers.values():
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)


def test_an_action_that_paid_becomes_likelier() -> None:
    learner = make(actor_lr=1e-3, critic_lr=2e-3, entropy_coef=0.0, gamma=0.0, normalize_observations=False)
    data = rollout(learner)
    data.rewards[:] = data.actions
    for _ in range(10):
        learner.learn(data, 0.0)
    observations = torch.from_numpy(data.observations.reshape(-1, 4))  # type: ignore[union-attr]
    assert torch.softmax(learner.actor(observations), -1)[:, 1].mean() > 0.6
