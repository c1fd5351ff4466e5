"""PPO as CleanRL's scripts write it: one loop over a vector environment, tensors of [steps, environments]."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

STEPS, UPDATES, EPOCHS, MINIBATCHES = 32, 3, 2, 4
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


class Agent(nn.Module):
    def __init__(self, envs: Any) -> None:
        super().__init__()
        size = int(np.prod(envs.single_observation_space.shape))
        self.critic = nn.Sequential(nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, 1))
        self.actor = nn.Sequential(nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, int(envs.single_action_space.n)))

    def act(self, observations: Any, actions: Any = None) -> tuple[Any, Any, Any, Any]:
        chances = Categorical(logits=self.actor(observations))
        actions = chances.sample() if actions is None else actions
        return actions, chances.log_prob(actions), chances.entropy(), self.critic(observations).flatten()


def ppo(envs: Any, seed: int = 1, without_resets: bool = False) -> tuple[dict[str, Any], list[float]]:
    """Trains; returns the weights and the returns of all episodes.

    Args:
        envs: In NEXT_STEP or SAME_STEP mode.
        seed: Of everything.
        without_resets: Leaves out the samples of steps that only reset an environment, which NEXT_STEP mode has.
    """
    torch.manual_seed(seed)
    np.random.seed(seed)
    agent, n = Agent(envs), envs.num_envs
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    obs = torch.zeros((STEPS, n, *envs.single_observation_space.shape))
    actions, logprobs, rewards, dones, values = (torch.zeros((STEPS, n)) for _ in range(5))
    returns: list[float] = []
    next_obs, next_done = torch.Tensor(envs.reset(seed=seed)[0]), torch.zeros(n)
    for _ in range(UPDATES):
        for step in range(STEPS):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                actions[step], logprobs[step], _, values[step] = agent.act(next_obs)
            seen, reward, terminated, truncated, infos = envs.step(actions[step].numpy().astype(np.int64))
            rewards[step] = torch.tensor(reward)
            next_obs, next_done = torch.Tensor(seen), torch.Tensor(np.logical_or(terminated, truncated))
            returns += finished(infos)
        with torch.no_grad():
            advantages = gae(rewards, values, dones, agent.critic(next_obs).flatten(), next_done)
        chosen = np.flatnonzero(dones.flatten() == 0) if without_resets else np.arange(STEPS * n)
        batch = (obs.flatten(0, 1), actions.flatten(), logprobs.flatten(), advantages.flatten(), values.flatten())
        for _ in range(EPOCHS):
            np.random.shuffle(chosen)
            for part in np.array_split(chosen, MINIBATCHES):
                update(agent, optimizer, *(each[part] for each in batch))
    envs.close()
    return agent.state_dict(), returns


def finished(infos: dict[str, Any]) -> list[float]:
    """The returns of the episodes that ended: beside the infos, or in those of the steps that ended them."""
    holder = infos if "episode" in infos else infos.get("final_info", {})
    return [float(each) for each in holder["episode"]["r"][holder["_episode"]]] if "episode" in holder else []


def gae(rewards: Any, values: Any, dones: Any, next_value: Any, next_done: Any) -> Any:
    advantages, last = torch.zeros_like(rewards), torch.zeros_like(next_value)
    for step in reversed(range(STEPS)):
        ended = next_done if step == STEPS - 1 else dones[step + 1]
        following = next_value if step == STEPS - 1 else values[step + 1]
        delta = rewards[step] + GAMMA * following * (1 - ended) - values[step]
        advantages[step] = last = delta + GAMMA * LAMBDA * (1 - ended) * last
    return advantages


def update(agent: Any, optimizer: Any, obs: Any, actions: Any, logprobs: Any, advantages: Any, values: Any) -> None:
    _, new_logprobs, entropy, new_values = agent.act(obs, actions)
    ratio = (new_logprobs - logprobs).exp()
    normal = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy_loss = torch.max(-normal * ratio, -normal * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
    value_loss = 0.5 * ((new_values - (advantages + values)) ** 2).mean()
    optimizer.zero_grad()
    (policy_loss - 0.01 * entropy.mean() + 0.5 * value_loss).backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()
