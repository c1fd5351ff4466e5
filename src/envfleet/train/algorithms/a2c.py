"""Advantage actor-critic (A2C): one step of the actor a rollout, several of the critic.

    rollout ──▶ values, advantages (GAE) ──▶ critic: squared error to the returns, `critic_updates` times
                                         └─▶ actor:  -advantage · log-probability - entropy bonus, once

Actor and critic are networks of their own with optimisers of their own. The critic only fits numbers, so it takes
larger and more steps; the actor's gradient is valid for the policy that collected the rollout, so it takes one.
"""

from __future__ import annotations

from typing import final

from torch import Tensor

from envfleet.train.algorithms.learner import Batch, OnPolicyLearner, critic_loss, gradient_step, normalized
from envfleet.train.config import A2CConfig
from envfleet.train.networks.networks import Actor


def actor_loss(actor: Actor, batch: Batch, advantages: Tensor, entropy_coef: float) -> tuple[Tensor, Tensor]:
    """The policy gradient's loss with the entropy bonus, and the mean entropy."""
    outputs = actor(batch.observations)
    log_prob = actor.distribution.log_prob(outputs, batch.actions)
    entropy = actor.distribution.entropy(outputs).mean()
    return -(advantages * log_prob).mean() - entropy_coef * entropy, entropy


@final
class A2C(OnPolicyLearner[A2CConfig]):
    """The algorithm: one update of the actor a rollout, `critic_updates` of the critic."""

    metrics = ("actor_loss", "critic_loss", "entropy")

    def _update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        value_error = self._update_critic(batch)
        policy_loss, entropy = self._update_actor(batch, entropy_coef)
        return {"actor_loss": policy_loss, "critic_loss": value_error, "entropy": entropy}

    def _update_critic(self, batch: Batch) -> float:
        total = 0.0
        for _ in range(self._config.critic_updates):
            loss = critic_loss(self.critic, batch)
            gradient_step(loss, self._critic_optimizer, self._config.max_grad_norm, of="critic")
            total += loss.item()
        return total / self._config.critic_updates

    def _update_actor(self, batch: Batch, entropy_coef: float) -> tuple[float, float]:
        advantages = normalized(batch.advantages) if self._config.normalize_advantages else batch.advantages
        loss, entropy = actor_loss(self.actor, batch, advantages, entropy_coef)
        gradient_step(loss, self._actor_optimizer, self._config.max_grad_norm, of="actor")
        return loss.item(), entropy.item()
