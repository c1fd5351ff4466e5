"""Proximal policy optimisation (PPO): several epochs of minibatches over each rollout, held near the old policy.

rollout ──▶ values, advantages (GAE), old log-probabilities
        ──▶ each epoch, each minibatch: critic: squared error to the returns
                                  actor:  clipped probability ratio · advantage + entropy bonus
            until the policy moved further than `target_kl`
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from envfleet.train.algorithms.compiled import CompiledPPO
from envfleet.train.algorithms.learner import Batch, OnPolicyLearner, critic_loss, gradient_step, normalized
from envfleet.train.config import PPOConfig
from envfleet.train.networks.modes import evaluation_mode
from envfleet.train.networks.networks import Actor


@dataclass(frozen=True, eq=False)
class PolicyLoss:
    """The actor's loss on a minibatch and what is worth knowing about it; scalars."""

    loss: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def actor_loss(
    actor: Actor, batch: Batch, advantages: Tensor, old_log_prob: Tensor, clip_range: float, entropy_coef: float
) -> PolicyLoss:
    """The clipped surrogate's loss with the entropy bonus."""
    outputs = actor(batch.observations)
    log_ratio = actor.distribution.log_prob(outputs, batch.actions) - old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages).mean()
    entropy = actor.distribution.entropy(outputs).mean()
    with torch.no_grad():
        # E[(r - 1) - log r] estimates the same divergence as E[-log r], is never negative and varies less.
        approx_kl = (ratio - 1 - log_ratio).mean()
        clip_fraction = ((ratio - 1).abs() > clip_range).float().mean()
    return PolicyLoss(-surrogate - entropy_coef * entropy, entropy, approx_kl, clip_fraction)


@final
class PPO(OnPolicyLearner[PPOConfig]):
    """The algorithm: `epochs` passes over each rollout, fewer if the policy has moved far enough."""

    metrics = ("actor_loss", "critic_loss", "entropy", "approx_kl", "clip_fraction", "epochs")
    compiled = CompiledPPO

    def update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """Passes over one batch: a whole rollout with its advantages and returns, in minibatches."""
        with torch.no_grad(), evaluation_mode(self.actor):  # as it acted
            old_log_prob = self.actor.distribution.log_prob(self.actor(batch.observations), batch.actions)
        epochs = []
        for _ in range(self.config.epochs):
            epochs.append(self._epoch(batch, old_log_prob, entropy_coef))
            if 0 < self.config.target_kl < epochs[-1]["approx_kl"]:
                break
        means = {name: sum(epoch[name] for epoch in epochs) / len(epochs) for name in epochs[0]}
        # How far the policy has moved in the end: a mean over the epochs on the way would tell about half of it.
        return {**means, "approx_kl": epochs[-1]["approx_kl"], "epochs": float(len(epochs))}

    def _epoch(self, batch: Batch, old_log_prob: Tensor, entropy_coef: float) -> dict[str, float]:
        order = torch.randperm(len(batch), device=self.device)
        # As many as are needed, all of one size within a row: a few left over would take a whole step by themselves.
        parts = torch.tensor_split(order, math.ceil(len(batch) / self.config.minibatch_size))
        metrics = [self._step(batch.at(rows), old_log_prob[rows], entropy_coef) for rows in parts]
        return dict(zip(self.metrics[:-1], torch.stack(metrics).mean(0).tolist(), strict=True))

    def _step(self, batch: Batch, old_log_prob: Tensor, entropy_coef: float) -> Tensor:
        config = self.config
        value_loss = critic_loss(self.critic, batch)
        gradient_step(value_loss, self.critic_optimizer, config.max_grad_norm, of="critic")
        advantages = normalized(batch.advantages) if config.normalize_advantages else batch.advantages
        policy = actor_loss(self.actor, batch, advantages, old_log_prob, config.clip_range, entropy_coef)
        gradient_step(policy.loss, self.actor_optimizer, config.max_grad_norm, of="actor")
        metrics = (policy.loss, value_loss, policy.entropy, policy.approx_kl, policy.clip_fraction)
        return torch.stack([metric.detach() for metric in metrics])
