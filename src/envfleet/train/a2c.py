"""Advantage actor-critic (A2C): one step of the actor a rollout, several of the critic.

    rollout ──▶ values, advantages (GAE) ──▶ critic: squared error to the returns, `critic_updates` times
                                         └─▶ actor:  -advantage · log-probability - entropy bonus, once

Actor and critic are networks of their own with optimisers of their own. The critic only fits numbers, so it takes
larger and more steps; the actor's gradient is valid for the policy that collected the rollout, so it takes one.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from envfleet.train.config import A2CConfig
from envfleet.train.descent import descend, make_optimizer, set_learning_rate
from envfleet.train.learner import Task
from envfleet.train.networks import Actor, Critic, Layout, observe
from envfleet.train.observations import Array, Observations
from envfleet.train.on_policy import (
    Batch,
    make_actor,
    make_batch,
    make_critic,
    make_policy,
    normalized,
)
from envfleet.train.rollout import Rollout, Rows


def critic_loss(critic: Critic, batch: Batch) -> Tensor:
    """Half the mean squared error of the values."""
    return 0.5 * functional.mse_loss(critic(batch.observations), batch.returns)


def actor_loss(actor: Actor, batch: Batch, advantages: Tensor, entropy_coef: float) -> tuple[Tensor, Tensor]:
    """The policy gradient's loss with the entropy bonus, and the mean entropy."""
    outputs = actor(batch.observations)
    log_prob = actor.distribution.log_prob(outputs, batch.actions)
    entropy = actor.distribution.entropy(outputs).mean()
    return -(advantages * log_prob).mean() - entropy_coef * entropy, entropy


class A2C:
    """The algorithm with its networks and optimisers; a `Learner`."""

    off_policy = False

    def __init__(self, config: A2CConfig, task: Task) -> None:
        self._config = config
        self._device = task.device
        self.rollout_steps = config.rollout_steps
        layout = Layout(config.hidden_sizes, config.activation, config.normalize_observations)
        self.actor = make_actor(task, layout)
        self.critic = make_critic(task, layout)
        self._policy = make_policy(self.actor, task, config.rollout_steps)
        self._actor_optimizer = make_optimizer(self.actor, config.actor_lr, short_memory=True)
        self._critic_optimizer = make_optimizer(self.critic, config.critic_lr, short_memory=True)
        self.modules: Mapping[str, nn.Module] = {"actor": self.actor, "critic": self.critic}
        self.optimizers: Mapping[str, torch.optim.Optimizer] = {
            "actor": self._actor_optimizer,
            "critic": self._critic_optimizer,
        }

    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:  # noqa: ARG002  nobody is special
        """Actions drawn from the policy, one a row."""
        return self._policy(observations)

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """One update of the actor, `critic_updates` of the critic."""
        config = self._config
        remaining = 1 - progress if config.anneal else 1.0
        set_learning_rate(self._actor_optimizer, config.actor_lr * remaining)
        set_learning_rate(self._critic_optimizer, config.critic_lr * remaining)
        batch = make_batch(
            rollout,
            self.critic,
            self._device,
            reward_scale=config.reward_scale,
            gamma=config.gamma,
            lam=config.gae_lambda,
        )
        value_error = self._update_critic(batch)
        policy_loss, entropy = self._update_actor(batch, config.entropy_coef * remaining)
        # Statistics move only now, so that the policy learns with the ones it acted with.
        observe(self.actor, batch.observations)
        observe(self.critic, batch.observations)
        return {
            "actor_loss": policy_loss,
            "critic_loss": value_error,
            "entropy": entropy,
            "learning_rate": config.actor_lr * remaining,
            "explained_variance": batch.explained_variance,
        }

    def extra_tensors(self) -> dict[str, Tensor]:
        """Nothing: networks and optimisers are all there is."""
        return {}

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing to load."""

    def _update_critic(self, batch: Batch) -> float:
        total = 0.0
        for _ in range(self._config.critic_updates):
            loss = critic_loss(self.critic, batch)
            descend(loss, self._critic_optimizer, self._config.max_grad_norm)
            total += loss.item()
        return total / self._config.critic_updates

    def _update_actor(self, batch: Batch, entropy_coef: float) -> tuple[float, float]:
        advantages = normalized(batch.advantages) if self._config.normalize_advantages else batch.advantages
        loss, entropy = actor_loss(self.actor, batch, advantages, entropy_coef)
        descend(loss, self._actor_optimizer, self._config.max_grad_norm)
        return loss.item(), entropy.item()
