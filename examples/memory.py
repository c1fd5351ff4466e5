"""A policy that remembers: a small recurrent network learns what no policy without memory can."""

from typing import Any

import gymnasium as gym
import numpy as np
import tyro

from envfleet.train import MemoryLearner, PPOConfig, Sequences, evaluate, gradient_step, train


class Recall(gym.Env[Any, Any]):
    """The first observation is -1 or 1, all others are 0; the last action is to say which it was."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Show what is to be remembered."""
        super().reset(seed=seed, options=options)
        self._right, self._step = int(self.np_random.integers(2)), 0
        return np.array([2 * self._right - 1], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Show nothing; the reward comes with the fifth step."""
        self._step += 1
        return np.zeros(1, np.float32), float(self._step == 5 and action == self._right), self._step == 5, False, {}


class RecurrentPPO(MemoryLearner[PPOConfig]):
    """PPO on whole sequences: `along` carries the state through them, from zero where an episode begins."""

    metrics = ("actor_loss", "critic_loss")

    def update(self, batch: Sequences, entropy_coef: float) -> dict[str, float]:
        """Passes over the rollout, each one step for both networks."""
        config, old = self.config, self.along(batch)[0].detach()
        gain = (batch.advantages - batch.mean(batch.advantages)) / (batch.advantages[batch.valid].std() + 1e-8)
        for _ in range(config.epochs):
            log_prob, entropy, values = self.along(batch)
            ratio = (log_prob - old).exp()
            clipped = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
            actor_loss = -batch.mean((ratio * gain).minimum(clipped * gain))
            critic_loss = batch.mean((values - batch.returns).square())
            loss = actor_loss + 0.5 * critic_loss - entropy_coef * batch.mean(entropy)
            gradient_step(loss, self.optimizer, config.max_grad_norm)
        return {"actor_loss": actor_loss.item(), "critic_loss": critic_loss.item()}


def main(total_steps: int = 20_480, episodes: int = 100) -> None:
    """Learn with memory and without."""
    config = PPOConfig(Recall, rollout_steps=20, hidden_sizes=(16,), actor_lr=1e-2, total_steps=total_steps)
    for name, learner in (("with memory", RecurrentPPO), ("without", None)):
        agent = train(config, learner=learner, progress=False).agent
        print(f"{name}: {evaluate(agent, episodes=episodes).mean_return:.0%} right")


if __name__ == "__main__":
    tyro.cli(main)
