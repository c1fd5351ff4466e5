"""Advantage actor-critic (A2C): one step of the actor per rollout, several of the critic.

    rollout ──▶ values, advantages (GAE) ──▶ critic: squared error to the returns, `critic_updates` times
                                         └─▶ actor:  -advantage · log-probability - entropy bonus, once

Actor and critic are networks of their own with optimisers of their own. The critic only fits numbers, so it takes
larger and more steps; the actor's gradient is valid for the policy that collected the rollout, so it takes one.
"""

from __future__ import annotations

from typing import final

from torch import Tensor

from envfleet.train.algorithms.compiled import CompiledA2C
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
    compiled = CompiledA2C

    def update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """The critic's steps, then the actor's, all from one batch: a whole rollout with its advantages and returns."""
        config = self.config
        value_error = 0.0
        for _ in range(config.critic_updates):
            value_loss = critic_loss(self.critic, batch)
            gradient_step(value_loss, self.critic_optimizer, config.max_grad_norm, of="critic")
            value_error += value_loss.item()
        advantages = normalized(batch.advantages) if config.normalize_advantages else batch.advantages
        policy_loss, entropy = actor_loss(self.actor, batch, advantages, entropy_coef)
        gradient_step(policy_loss, self.actor_optimizer, config.max_grad_norm, of="actor")
        return {
            "actor_loss": policy_loss.item(),
            "critic_loss": value_error / config.critic_updates,
            "entropy": entropy.item(),
        }
