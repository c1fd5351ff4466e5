"""Networks of one's own: any torch modules with the right outputs, trained, saved and loaded like envfleet's."""

import gymnasium
import tyro
from torch import Tensor, nn

from envfleet.train import Networks, PPOConfig, evaluate, load_agent, train


class Residual(nn.Module):
    """A block that learns what to add to its input, [batch, width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, features: Tensor) -> Tensor:
        """[batch, width]."""
        return features + self.change(features)


def network(inputs: int, outputs: int, width: int = 64) -> nn.Module:
    """From observations float32[batch, inputs] to [batch, outputs]."""
    last = nn.Linear(width, outputs)
    nn.init.zeros_(last.weight)  # the first policy is chance, the first value 0
    return nn.Sequential(nn.Linear(inputs, width), Residual(width), Residual(width), nn.LayerNorm(width), last)


def networks(env_id: str) -> Networks:
    """Fresh ones: the actor gives a number for each action, the critic one for the state."""
    env = gymnasium.make(env_id)
    inputs, actions = env.observation_space.shape[0], int(env.action_space.n)
    env.close()
    return Networks(actor=network(inputs, actions), critic=network(inputs, 1))


def main(env_id: str = "CartPole-v1", total_steps: int = 100_000, episodes: int = 50) -> None:
    """Train on an environment with a vector of observations and a choice of actions."""
    config = PPOConfig(env_id, total_steps=total_steps, actor_lr=5e-4, critic_lr=1e-3)
    result = train(config, networks=networks(env_id))

    # A file holds the weights but not the architecture: loading needs the same modules again, to be filled.
    agent = load_agent(result.run_dir, networks=networks(env_id))
    score = evaluate(agent, episodes=episodes)
    print(f"return {score.mean_return:.1f} ± {score.half_interval:.1f}")


if __name__ == "__main__":
    tyro.cli(main)
