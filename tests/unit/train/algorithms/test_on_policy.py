"""What A2C and PPO learn from a rollout: the right next states, and transitions only."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from tiny_envs import EXAMPLE, NEXT_STEP, SAME_STEP, Script, scripted_fleet
from torch import nn

from envfleet.train.algorithms.a2c import A2C
from envfleet.train.algorithms.learner import Batch, Task, gradient_step, make_batch, normalized, values_along
from envfleet.train.algorithms.ppo import PPO
from envfleet.train.algorithms.registry import make_learner
from envfleet.train.collecting import Rollout, begin, collect
from envfleet.train.config import A2CConfig, PPOConfig, TrainConfig
from envfleet.train.networks.networks import Critic

CPU = torch.device("cpu")
GAMMA = 0.9
MODES = pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP], ids=["NEXT_STEP", "SAME_STEP"])
CONFIGS = pytest.mark.parametrize(
    "config",
    [
        A2CConfig("unused", normalize_observations=True, hidden_sizes=(8,)),
        PPOConfig("unused", normalize_observations=True, hidden_sizes=(8,), minibatch_size=4, epochs=2),
    ],
    ids=["a2c", "ppo"],
)


class Moment(nn.Module):
    """The value of an observation is the number that names its moment."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations[:, 0]


def policy(observations: Any) -> np.ndarray:
    return observations[:, 0].astype(np.int64) % 3


def rollout_of(mode: AutoresetMode, steps: int, *scripts: Script, before: int = 0) -> Rollout:
    with scripted_fleet(mode, scripts or (EXAMPLE,)) as envs:
        start = begin(envs, 0)
        if before:
            start = collect(envs, policy, before, start).end
        return collect(envs, policy, steps, start)


def same_transitions(steps: int) -> tuple[Rollout, Rollout]:
    """A rollout in NEXT_STEP mode, and the one in SAME_STEP mode that holds the same transitions."""
    with_resets = rollout_of(NEXT_STEP, steps)
    return with_resets, rollout_of(SAME_STEP, with_resets.transitions)


def batch_of(rollout: Rollout, lam: float = 0.8, reward_scale: float = 1.0) -> Batch:
    return make_batch(rollout, Critic(Moment()), CPU, reward_scale=reward_scale, gamma=GAMMA, lam=lam)


def learner_for(config: TrainConfig) -> A2C | PPO:
    with torch.random.fork_rng(devices=[]), scripted_fleet(SAME_STEP, (EXAMPLE,)) as envs:
        torch.manual_seed(0)
        learner = make_learner(config, Task(envs.single_observation_space, envs.single_action_space, 1, CPU))
    assert isinstance(learner, A2C | PPO)
    return learner


def learnt(config: TrainConfig, rollout: Rollout) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Everything a learner holds after learning from a rollout, and the figures it gave."""
    learner = learner_for(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        figures = learner.learn(rollout, 0.0)
    tensors = {f"{name}/{key}": t for name, m in learner.modules.items() for key, t in m.state_dict().items()}
    return tensors, figures


def with_garbage(rollout: Rollout) -> Rollout:
    """Other numbers wherever a row is no transition."""
    observations = rollout.observations
    assert isinstance(observations, np.ndarray)
    for array, garbage in ((observations, -1e3), (rollout.actions, 2), (rollout.rewards, 1e3)):
        array[~rollout.valid] = garbage
    return rollout


class TestBootstrap:
    """One environment, its observations named 10 · episode + step; V(observation) is that name."""

    @MODES
    def test_next_states_are_those_the_steps_led_to(self, mode: AutoresetMode) -> None:
        rollout = rollout_of(mode, 14)
        values, next_values = values_along(rollout, Critic(Moment()), CPU)
        # Within an episode a step leads to the next number, also from its last step: never to the next episode's 0.
        np.testing.assert_array_equal(next_values[rollout.valid], values[rollout.valid] + 1)
        assert np.count_nonzero(rollout.truncated & ~rollout.terminated) >= 2
        assert values.dtype == next_values.dtype == np.float64

    @MODES
    @pytest.mark.parametrize("length", [1, 3])
    def test_a_truncated_step_is_worth_its_final_observation(self, mode: AutoresetMode, length: int) -> None:
        rollout = rollout_of(mode, length, ((length, "truncated"),))
        advantages = batch_of(rollout, lam=0.0).advantages
        assert advantages[-1].item() == pytest.approx(length**2 + GAMMA * length - (length - 1))

    @MODES
    @pytest.mark.parametrize("ending", ["terminated", "both"])
    @pytest.mark.parametrize("after", [0, 1, 2])
    def test_a_terminated_step_is_worth_its_reward(self, mode: AutoresetMode, ending: Any, after: int) -> None:
        rollout = rollout_of(mode, 3 + after, ((3, ending), (9, "truncated")))
        assert batch_of(rollout, lam=0.8).advantages[2].item() == pytest.approx(9 - 2)

    @MODES
    @pytest.mark.parametrize("after", [1, 2, 5])
    def test_nothing_flows_back_from_the_next_episode(self, mode: AutoresetMode, after: int) -> None:
        script: Script = ((3, "truncated"), (9, "truncated"))
        alone = batch_of(rollout_of(mode, 3, script)).advantages
        torch.testing.assert_close(batch_of(rollout_of(mode, 3 + after, script)).advantages[:3], alone)

    @MODES
    @pytest.mark.parametrize("lam", [0.0, 0.8, 1.0])
    def test_the_last_step_of_a_rollout_has_a_real_advantage(self, mode: AutoresetMode, lam: float) -> None:
        advantages = batch_of(rollout_of(mode, 2, ((9, "truncated"),)), lam).advantages
        assert advantages[1].item() == pytest.approx(4 + GAMMA * 2 - 1)
        assert advantages[0].item() == pytest.approx(1 + GAMMA * 1 - 0 + GAMMA * lam * advantages[1].item())

    @MODES
    def test_an_episode_may_go_on_from_rollout_to_rollout(self, mode: AutoresetMode) -> None:
        batch = batch_of(rollout_of(mode, 2, ((9, "truncated"),), before=2), lam=0.0)
        assert batch.advantages.tolist() == pytest.approx([9 + GAMMA * 3 - 2, 16 + GAMMA * 4 - 3])


class TestResetRows:
    @pytest.mark.parametrize("steps", range(1, 16))
    def test_both_modes_give_the_same_batch(self, steps: int) -> None:
        ours, theirs = (batch_of(rollout) for rollout in same_transitions(steps))
        for name in ("observations", "actions", "advantages", "returns"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        np.testing.assert_equal(ours.explained_variance, theirs.explained_variance)

    def test_what_stands_in_a_reset_row_does_not_matter(self) -> None:
        before = batch_of(rollout_of(NEXT_STEP, 14))
        after = batch_of(with_garbage(rollout_of(NEXT_STEP, 14)))
        for name in ("observations", "actions", "advantages", "returns"):
            assert torch.equal(getattr(before, name), getattr(after, name)), name
        assert before.explained_variance == after.explained_variance

    @CONFIGS
    def test_both_modes_teach_the_same(self, config: TrainConfig) -> None:
        (ours, our_figures), (theirs, their_figures) = (learnt(config, rollout) for rollout in same_transitions(14))
        assert our_figures == their_figures
        assert ours.keys() == theirs.keys()
        for name, tensor in ours.items():
            assert torch.equal(tensor, theirs[name]), name

    @CONFIGS
    def test_garbage_teaches_nothing(self, config: TrainConfig) -> None:
        before, figures = learnt(config, rollout_of(NEXT_STEP, 14))
        after, with_noise = learnt(config, with_garbage(rollout_of(NEXT_STEP, 14)))
        assert figures == with_noise
        for name, tensor in before.items():
            assert torch.equal(tensor, after[name]), name

    @CONFIGS
    @MODES
    def test_statistics_count_the_observations_of_transitions(self, config: TrainConfig, mode: AutoresetMode) -> None:
        rollout = rollout_of(mode, 14)
        tensors, _ = learnt(config, rollout)
        assert isinstance(rollout.observations, np.ndarray)
        seen = rollout.observations[rollout.valid]
        for network in ("actor", "critic"):
            assert tensors[f"{network}/body.encoder.normalizer.count"] == rollout.transitions
            np.testing.assert_allclose(tensors[f"{network}/body.encoder.normalizer.mean"], seen.mean(0))


@CONFIGS
def test_the_policy_learns_with_the_statistics_it_acted_with(config: TrainConfig) -> None:
    """Otherwise the log-probabilities of its actions would be those of another policy, and PPO's ratio not 1."""
    learner = learner_for(dataclasses.replace(config, learner="torch"))
    counts = []
    forward = learner.actor.body.forward

    def watched(observations: torch.Tensor) -> torch.Tensor:
        counts.append(learner.actor.state_dict()["body.encoder.normalizer.count"].item())
        return forward(observations)

    learner.actor.body.forward = watched  # type: ignore[method-assign]
    learner.learn(rollout_of(SAME_STEP, 6), 0.0)
    learner.learn(rollout_of(SAME_STEP, 6), 0.0)
    assert sorted(set(counts)) == [0, 6]


def test_rows_go_by_step_then_environment() -> None:
    batch = batch_of(rollout_of(SAME_STEP, 3, ((9, "truncated"),), ((9, "truncated"),)))
    assert isinstance(batch.observations, torch.Tensor)
    assert batch.observations[:, 0].tolist() == [0, 1000, 1, 1001, 2, 1002]
    assert len(batch) == 6
    assert batch.at(torch.tensor([4, 1])).observations[:, 0].tolist() == [2, 1000]  # type: ignore[call-overload]


def test_returns_are_advantages_and_values() -> None:
    batch = batch_of(rollout_of(SAME_STEP, 12))
    assert isinstance(batch.observations, torch.Tensor)
    torch.testing.assert_close(batch.returns, batch.advantages + batch.observations[:, 0].float())
    assert batch.advantages.dtype == batch.returns.dtype == torch.float32


def test_rewards_are_scaled_for_learning() -> None:
    rollout = rollout_of(SAME_STEP, 1, ((9, "truncated"),))
    assert batch_of(rollout, reward_scale=0.5).advantages.item() == pytest.approx(0.5 + GAMMA)
    assert rollout.rewards.item() == 1


class TestNormalized:
    def test_mean_0_and_variance_1(self) -> None:
        advantages = normalized(torch.tensor([1.0, 2.0, 6.0]))
        assert advantages.mean().item() == pytest.approx(0, abs=1e-6)
        assert advantages.std().item() == pytest.approx(1)

    @pytest.mark.parametrize("number", [1, 3])
    def test_equal_ones_become_0(self, number: int) -> None:
        assert normalized(torch.full((number,), 7.0)).tolist() == [0] * number


class TestGradientStep:
    def stepped(self, max_grad_norm: float) -> torch.Tensor:
        layer = nn.Linear(2, 1, bias=False)
        nn.init.zeros_(layer.weight)
        optimizer = torch.optim.SGD(layer.parameters(), 1.0)
        for _ in range(2):  # the second gradient must not be added to the first
            nn.init.zeros_(layer.weight)
            gradient_step(layer(torch.tensor([3.0, 4.0])).sum(), optimizer, max_grad_norm)
        return layer.weight.detach()[0]

    def test_long_gradients_are_shortened(self) -> None:
        torch.testing.assert_close(self.stepped(0.5), torch.tensor([-0.3, -0.4]))

    def test_short_ones_and_those_of_no_limit_are_not(self) -> None:
        torch.testing.assert_close(self.stepped(100.0), torch.tensor([-3.0, -4.0]))
        torch.testing.assert_close(self.stepped(0.0), torch.tensor([-3.0, -4.0]))
