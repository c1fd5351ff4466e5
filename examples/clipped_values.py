"""PPO with a clipped value loss: the critic, like the policy, stays near where it was. It has a setting of its own."""

from dataclasses import dataclass

import torch
import tyro
from torch import Tensor

from envfleet.train import Batch, OnPolicyLearner, PPOConfig, gradient_step, train


@dataclass(frozen=True, kw_only=True)
class ClippedConfig(PPOConfig):
    """PPO's settings and one more.

    Attributes:
        value_clip: how far a value may go from the old one before its gradient is cut.
    """

    value_clip: float = 0.2


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Half the larger of two squared errors: of the value, and of the value held near the old one."""
    near = old + (values - old).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - returns).square(), (near - returns).square()).mean()


class ClippedValues(OnPolicyLearner[ClippedConfig]):
    """PPO, but for the value loss."""

    metrics = ("actor_loss", "critic_loss")

    def update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """Passes over the batch in minibatches."""
        config, policy = self.config, self.actor.distribution
        with torch.no_grad():
            old = policy.log_prob(self.actor(batch.observations), batch.actions)
        epochs = (torch.randperm(len(batch)).split(config.minibatch_size) for _ in range(config.epochs))
        for rows in (rows for epoch in epochs for rows in epoch):
            part = batch.at(rows)
            critic_loss = value_loss(self.critic(part.observations), part.values, part.returns, config.value_clip)
            gradient_step(critic_loss, self.critic_optimizer, config.max_grad_norm)
            gain = (part.advantages - part.advantages.mean()) / (part.advantages.std(correction=0) + 1e-8)
            outputs = self.actor(part.observations)
            ratio = (policy.log_prob(outputs, part.actions) - old[rows]).exp()
            clipped = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
            actor_loss = -(ratio * gain).minimum(clipped * gain).mean() - entropy_coef * policy.entropy(outputs).mean()
            gradient_step(actor_loss, self.actor_optimizer, config.max_grad_norm)
        return {"actor_loss": actor_loss.item(), "critic_loss": critic_loss.item()}


def main(total_steps: int = 100_000, value_clip: float = 0.2) -> None:
    """Learn CartPole-v1."""
    result = train(ClippedConfig("CartPole-v1", total_steps=total_steps, value_clip=value_clip), learner=ClippedValues)
    print(f"{result.run_dir}: mean return {result.mean_return or 0:.0f} in the last 100 episodes")


if __name__ == "__main__":
    tyro.cli(main)
