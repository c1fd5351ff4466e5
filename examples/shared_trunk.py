"""A shared trunk: actor and critic use the same layers, and one optimiser moves both by a joint loss."""

from typing import Any

import torch
import tyro
from torch import nn

from envfleet.train import Batch, Critic, OnPolicyLearner, PPOConfig, Task, gradient_step, make_optimizer, train


class SharedTrunk(OnPolicyLearner[PPOConfig]):
    """PPO in which the critic is one layer on top of the actor's."""

    metrics = ("actor_loss", "critic_loss")

    def __init__(self, config: PPOConfig, task: Task) -> None:
        super().__init__(config, task)
        self.optimizer = make_optimizer(self.networks, config.actor_lr, config.adam_beta2)
        self.optimizers = {"networks": self.optimizer}  # what checkpoints hold, and what is annealed

    def critic_for(self, config: PPOConfig, task: Task) -> Critic:  # noqa: ARG002
        """All of the actor's layers but the last, and one of its own."""
        body: Any = self.actor.body
        return Critic(nn.Sequential(body.encoder, *body.layers[:-1], nn.Linear(config.hidden_sizes[-1], 1)))

    def update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """Passes over the batch, one step for both networks a minibatch."""
        config, policy = self.config, self.actor.distribution
        with torch.no_grad():
            old = policy.log_prob(self.actor(batch.observations), batch.actions)
        epochs = (torch.randperm(len(batch)).split(config.minibatch_size) for _ in range(config.epochs))
        for rows in (rows for epoch in epochs for rows in epoch):
            part = batch.at(rows)
            gain = (part.advantages - part.advantages.mean()) / (part.advantages.std(correction=0) + 1e-8)
            outputs = self.actor(part.observations)
            ratio = (policy.log_prob(outputs, part.actions) - old[rows]).exp()
            clipped = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
            actor_loss = -(ratio * gain).minimum(clipped * gain).mean()
            critic_loss = nn.functional.mse_loss(self.critic(part.observations), part.returns)
            loss = actor_loss + 0.5 * critic_loss - entropy_coef * policy.entropy(outputs).mean()
            gradient_step(loss, self.optimizer, config.max_grad_norm)
        return {"actor_loss": actor_loss.item(), "critic_loss": critic_loss.item()}


def main(total_steps: int = 100_000) -> None:
    """Learn CartPole-v1."""
    result = train(PPOConfig("CartPole-v1", total_steps=total_steps), learner=SharedTrunk)
    print(f"{result.run_dir}: mean return {result.mean_return or 0:.0f} in the last 100 episodes")


if __name__ == "__main__":
    tyro.cli(main)
