"""Curiosity by random network distillation: states that a network cannot yet predict are worth a bonus."""

from dataclasses import dataclass, replace

import numpy as np
import torch
import tyro
from torch import nn

from envfleet.train import A2CConfig, Batch, OnPolicyLearner, Rollout, Task, gradient_step, make_optimizer, train


@dataclass(frozen=True, kw_only=True)
class CuriousConfig(A2CConfig):
    """A2C's settings and `bonus`, what the prediction error of a state is multiplied by."""

    bonus: float = 1.0


class Curious(OnPolicyLearner[CuriousConfig]):
    """A2C with the bonus: the target is random and stays so, the predictor imitates it on what was seen."""

    metrics = ("actor_loss", "critic_loss")

    def __init__(self, config: CuriousConfig, task: Task) -> None:
        super().__init__(config, task)
        (size,) = task.observation_space.shape or ()
        self.target, self.predictor = (nn.Sequential(nn.Linear(size, 64), nn.ReLU(), nn.Linear(64, 16)) for _ in "ab")
        self.modules = {**self.modules, "target": self.target, "predictor": self.predictor}
        self.optimizers = {**self.optimizers, "predictor": make_optimizer(self.predictor, config.actor_lr)}

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Add the bonus to the rewards; returns are reported without it."""
        seen = torch.from_numpy(np.asarray(rollout.next_observations)[rollout.valid])
        error = (self.predictor(seen) - self.target(seen).detach()).square().mean(-1)
        rewards = rollout.rewards.copy()
        rewards[rollout.valid] += self.config.bonus * error.detach().numpy()
        metrics = super().learn(replace(rollout, rewards=rewards), progress)
        gradient_step(error.mean(), self.optimizers["predictor"])
        return {**metrics, "bonus": error.mean().item()}

    def update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """The critic's steps, then the actor's."""
        for _ in range(self.config.critic_updates):
            critic_loss = (self.critic(batch.observations) - batch.returns).square().mean()
            gradient_step(critic_loss, self.critic_optimizer, self.config.max_grad_norm)
        outputs, policy = self.actor(batch.observations), self.actor.distribution
        gain = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
        actor_loss = -(gain * policy.log_prob(outputs, batch.actions) + entropy_coef * policy.entropy(outputs)).mean()
        gradient_step(actor_loss, self.actor_optimizer, self.config.max_grad_norm)
        return {"actor_loss": actor_loss.item(), "critic_loss": critic_loss.item()}


def main(total_steps: int = 500_000) -> None:
    """Learn MountainCar-v0, where every step costs 1 until the hill is reached."""
    train(CuriousConfig("MountainCar-v0", total_steps=total_steps), learner=Curious)


if __name__ == "__main__":
    tyro.cli(main)
