"""Train once with a plain loop in one file, as CleanRL writes them, and print what it took as JSON.

Gymnasium's SyncVectorEnv, or PufferLib's workers; NumPy in, torch tensors on the way, one pass over the minibatches
after another. It takes Stable-Baselines3's names of settings and knows nothing of envfleet.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, final

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

WINDOW = 100
CLIP = 0.2


@final
class Agent(nn.Module):
    """Separate networks of two 64-unit tanh layers."""

    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        self.actor = _network(observations, actions)
        self.critic = _network(observations, 1)

    def value(self, observations: Tensor) -> Tensor:
        """What states are worth."""
        return torch.as_tensor(self.critic(observations)).squeeze(-1)

    def choices(self, observations: Tensor) -> Categorical:
        """Probabilities of actions."""
        return Categorical(logits=self.actor(observations))


def _network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def train(request: Mapping[str, Any]) -> dict[str, Any]:
    """Train for so many steps."""
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    torch.manual_seed(request["seed"])
    started = time.perf_counter()
    envs = PufferWorkers(request) if request.get("vec_env") == "pufferlib" else _gymnasiums(request)
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=request["settings"]["learning_rate"], eps=1e-5)
    ready = time.perf_counter()
    observations, _ = envs.reset(seed=request["seed"])
    steps, rollout = 0, request["settings"]["n_steps"] * request["num_envs"]
    while steps < request["total_steps"]:
        observations, batch = collect(envs, agent, observations, request["settings"])
        update(agent, optimizer, batch, request["settings"], clipped=request["algo"] == "ppo")
        steps += rollout
    seconds = time.perf_counter() - ready
    returns = getattr(envs, "return_queue", ())
    envs.close()
    return {
        "steps": steps,
        "seconds": seconds,
        "set_up_seconds": ready - started,
        "last_return": float(np.mean(returns)) if len(returns) >= WINDOW else None,
        "reached": [],
        "plan": f"{type(envs.unwrapped).__name__}, {torch.get_num_threads()} torch threads",
        "versions": {"gymnasium": gymnasium.__version__, "torch": str(torch.__version__)},
    }


def _gymnasiums(request: Mapping[str, Any]) -> Any:
    fleet = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(request["env_id"])] * request["num_envs"])
    return gymnasium.wrappers.vector.RecordEpisodeStatistics(fleet, buffer_length=WINDOW)


@final
class PufferWorkers:
    """PufferLib's vector environment, called as Gymnasium's is."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        puffer = importlib.import_module("puffer_training")  # where this script lies
        self.num_envs = request["num_envs"]
        self._envs = puffer.workers(request["env_id"], self.num_envs)
        self.single_observation_space = self._envs.single_observation_space
        self.single_action_space = self._envs.single_action_space

    @property
    def unwrapped(self) -> Any:
        """PufferLib's own."""
        return self._envs

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Reset all environments."""
        self._envs.async_reset(seed)
        return self._envs.recv()[0], {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step all environments."""
        self._envs.send(actions)
        return tuple(self._envs.recv()[:5])

    def close(self) -> None:
        """End the processes."""
        self._envs.close()


def collect(envs: Any, agent: Agent, observations: Any, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Tensor]]:
    """One rollout with its advantages, flattened to [steps * environments, ...]."""
    steps, shape = settings["n_steps"], (settings["n_steps"], envs.num_envs)
    seen = torch.zeros(*shape, observations.shape[1])
    actions, chances, values, rewards, ends = (torch.zeros(shape) for _ in range(5))
    for step in range(steps):
        seen[step] = torch.as_tensor(observations)
        with torch.no_grad():
            choices = agent.choices(seen[step])
            actions[step] = choices.sample()  # type: ignore[no-untyped-call]
            chances[step] = choices.log_prob(actions[step])  # type: ignore[no-untyped-call]
            values[step] = agent.value(seen[step])
        observations, reward, terminated, truncated, _ = envs.step(actions[step].long().numpy())
        rewards[step] = torch.as_tensor(reward)
        ends[step] = torch.as_tensor(terminated | truncated)
    with torch.no_grad():
        following = agent.value(torch.as_tensor(observations))
    advantages, advantage = torch.zeros(shape), torch.zeros(envs.num_envs)
    for step in reversed(range(steps)):
        goes_on = 1.0 - ends[step]
        error = rewards[step] + settings["gamma"] * following * goes_on - values[step]
        advantage = error + settings["gamma"] * settings["gae_lambda"] * goes_on * advantage
        advantages[step], following = advantage, values[step]
    batch = {"seen": seen, "actions": actions, "chances": chances, "advantages": advantages}
    batch["returns"] = advantages + values
    return observations, {name: rows.flatten(0, 1) for name, rows in batch.items()}


def update(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    batch: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    *,
    clipped: bool,
) -> None:
    """Gradient steps: over minibatches, several times, with PPO's clipping; or one over everything."""
    total = len(batch["actions"])
    size = settings.get("batch_size", total)
    for _ in range(settings.get("n_epochs", 1)):
        for rows in torch.split(torch.randperm(total), size):
            part = {name: values[rows] for name, values in batch.items()}
            choices = agent.choices(part["seen"])
            advantages = (part["advantages"] - part["advantages"].mean()) / (part["advantages"].std() + 1e-8)
            chances = choices.log_prob(part["actions"])  # type: ignore[no-untyped-call]
            if clipped:
                ratio = (chances - part["chances"]).exp()
                gain = torch.min(advantages * ratio, advantages * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            else:
                gain = (advantages * chances).mean()
            value_loss = nn.functional.mse_loss(agent.value(part["seen"]), part["returns"])
            entropy = choices.entropy().mean()  # type: ignore[no-untyped-call]
            loss = settings["vf_coef"] * value_loss - gain - settings["ent_coef"] * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), settings.get("max_grad_norm", 0.5))
            optimizer.step()


if __name__ == "__main__":
    print(json.dumps(train(json.loads(sys.argv[1]))))
