"""An algorithm of one's own: REINFORCE with a learnt baseline. `collect` steps environments, `gae` does the sums."""

import numpy as np
import torch
import tyro
from torch import nn

from envfleet import make_vec
from envfleet.train import Actor, Critic, EpisodeTracker, Rollout, begin, collect, distribution_for, gae, values_along


def perceptron(inputs: int, outputs: int) -> nn.Module:
    """One hidden layer."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, outputs))


def loss(actor: Actor, critic: Critic, rollout: Rollout) -> torch.Tensor:
    """Policy gradient, entropy bonus, and the baseline's squared error."""
    values, next_values = values_along(rollout, critic, torch.device("cpu"))
    # lam=1: whole returns, with the baseline's word only for what lies beyond the rollout or a time limit.
    advantages = gae(rollout.rewards, values, next_values, rollout.terminated, rollout.done, gamma=0.99, lam=1.0)
    # A row that only resets its environment is no transition. What is left of [steps, num_envs, ...] is [n, ...].
    arrays = rollout.observations, rollout.actions, advantages, advantages + values
    observations, actions, advantage, returns = (torch.from_numpy(array[rollout.valid]) for array in arrays)
    outputs = actor(observations)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = (advantage * actor.distribution.log_prob(outputs, actions)).mean()
    bonus = actor.distribution.entropy(outputs).mean()
    return nn.functional.mse_loss(critic(observations).double(), returns) - gain - 0.01 * bonus


def main(num_envs: int = 16, updates: int = 150) -> None:
    """Learn CartPole-v1, printing how long the poles stay up."""
    torch.manual_seed(0)
    with make_vec("CartPole-v1", num_envs) as envs:
        actor = Actor(perceptron(4, 2), distribution_for(envs.single_action_space))
        critic = Critic(perceptron(4, 1))
        optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, updates)

        @torch.inference_mode()
        def policy(observations: np.ndarray) -> np.ndarray:
            return actor.distribution.sample(actor(torch.from_numpy(observations))).numpy()

        position, tracker = begin(envs, seed=0), EpisodeTracker(num_envs)
        for update in range(1, updates + 1):
            rollout = collect(envs, policy, 128, position)
            position = rollout.end
            optimizer.zero_grad()
            loss(actor, critic, rollout).backward()
            optimizer.step()
            schedule.step()
            returns = [episode.episode_return for episode in tracker.finished(rollout)]
            if returns and (update % 10 == 0 or update == updates):
                print(f"{update * rollout.rewards.size:>8,} steps: mean return {np.mean(returns):.0f}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
