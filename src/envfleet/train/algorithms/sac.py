"""Soft actor-critic (SAC): off-policy, for continuous actions.

    rollout ──▶ replay buffer ──▶ batch, `updates_per_step` times per transition:
        critic       squared error of both estimates to  rewards of some steps + what follows them: gamma to their power
                     · (min of both target estimates - temperature · log-probability), for an action drawn from the
                     policy in the state they led to; `return_steps` steps for `multi_step_share` of the run, then one
        actor        temperature · log-probability - min of both estimates, for an action drawn from the policy
        temperature  up while the policy's entropy is below its target, down while above
        targets      a share `tau` of the way to the critics

Only episodes that ended by themselves have no next state: where a time limit cut one off, the value of its final
observation counts like any other.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from envfleet.train.algorithms.compiled import choose
from envfleet.train.algorithms.compiled_sac import CompiledSAC
from envfleet.train.algorithms.demonstrations import load_demonstrations, rollouts_of
from envfleet.train.algorithms.exploration import PersistentNoise, uniform
from envfleet.train.algorithms.learner import (
    Task,
    gradient_step,
    layout_of,
    make_actor,
    make_optimizer,
    reward_scaling_for,
    set_learning_rate,
)
from envfleet.train.algorithms.replay import ReplayBuffer, Transitions
from envfleet.train.collecting import Rollout, Rows
from envfleet.train.config import SACConfig
from envfleet.train.networks.distributions import SquashedNormal, action_shape
from envfleet.train.networks.modes import TrainingMode
from envfleet.train.networks.networks import Actor, Layout, TwinCritic, observe
from envfleet.train.observations import (
    Array,
    Observations,
    Tensors,
    flattened,
    map_leaves,
    to_tensors,
)

METRICS = ("actor_loss", "critic_loss", "entropy", "temperature", "q_value")


class Temperature(nn.Module):
    """What a unit of entropy is worth, kept positive as the exponential of a parameter."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(initial)))

    def forward(self) -> Tensor:
        """The temperature, a scalar without gradient."""
        return torch.exp(self.log.detach())


@torch.no_grad()
def critic_targets(
    actor: Actor, target_critic: nn.Module, batch: Transitions, temperature: Tensor, reward_scale: float
) -> Tensor:
    """What both critics are to predict, float32[n]."""
    actions, log_prob = sample(actor, batch.next_observations)
    values: Tensor = target_critic(batch.next_observations, actions).amin(-1) - temperature * log_prob
    return reward_scale * batch.rewards + batch.discounts * (1 - batch.terminated) * values


def critic_loss(critic: nn.Module, batch: Transitions, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Half the squared error of each critic, added; and the mean estimate."""
    values: Tensor = critic(batch.observations, batch.actions)
    if values.shape != (len(targets), 2):
        raise ValueError(f"SAC's critic must give [batch, 2], two estimates per row, got {list(values.shape)}.")
    # The mean over both critics is half the sum of theirs.
    return functional.mse_loss(values, targets.unsqueeze(-1).expand_as(values)), values.detach().mean()


def actor_loss(actor: Actor, critic: nn.Module, batch: Transitions, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """What the policy is to make small, and the mean log-probability of its actions."""
    actions, log_prob = sample(actor, batch.observations)
    values = critic(batch.observations, actions).amin(-1)
    return (temperature * log_prob - values).mean(), log_prob.detach().mean()


def temperature_loss(temperature: Temperature, log_prob: Tensor, target_entropy: float) -> Tensor:
    """Its gradient raises the temperature while the entropy (-log_prob, a scalar) is below its target."""
    return -temperature.log * (log_prob + target_entropy)


def sample(actor: Actor, observations: Tensors) -> tuple[Tensor, Tensor]:
    """Actions [n, components] drawn from the policy, and their log-probabilities [n]; both differentiable."""
    distribution = actor.distribution
    assert isinstance(distribution, SquashedNormal)
    actions, log_prob = distribution.sample_with_log_prob(actor(observations))
    return actions.reshape(len(actions), -1), log_prob


class SAC:
    """The algorithm with its networks, optimisers and replay buffer; a `Learner`."""

    rollout_steps = 1
    off_policy = True
    needs_bounded_actions = True

    def __init__(self, config: SACConfig, task: Task) -> None:
        if config.learning_starts >= config.total_steps:
            raise ValueError(
                f"Nothing would be learnt: learning_starts={config.learning_starts} leaves nothing of "
                f"total_steps={config.total_steps}; lower the one or raise the other."
            )
        self._config = config
        self._device = task.device
        self._num_envs = task.num_envs
        self.actor = self.actor_for(config, task)
        self.critic = make_critic(task, layout_of(config))
        self._actor_training, self._critic_training = TrainingMode(self.actor), TrainingMode(self.critic)
        self._target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        # Listed once: walking through modules every update would show.
        self._critic_weights: list[Tensor] = list(self.critic.parameters())
        self._target_weights: list[Tensor] = list(self._target_critic.parameters())
        self._temperature = Temperature(config.initial_temperature).to(task.device)
        self.modules: Mapping[str, nn.Module] = {
            "actor": self.actor,
            "critic": self.critic,
            "target_critic": self._target_critic,
            "temperature": self._temperature,
        }
        self._actor_optimizer = make_optimizer(self.actor, config.actor_lr, config.adam_beta2)
        self._critic_optimizer = make_optimizer(self.critic, config.critic_lr, config.adam_beta2)
        self._temperature_optimizer = make_optimizer(self._temperature, config.temperature_lr, config.adam_beta2)
        self.optimizers: Mapping[str, torch.optim.Optimizer] = {
            "actor": self._actor_optimizer,
            "critic": self._critic_optimizer,
            "temperature": self._temperature_optimizer,
        }
        self._action_shape = action_shape(task.action_space)
        size = math.prod(self._action_shape)
        self._target_entropy = -float(size) if config.target_entropy is None else config.target_entropy
        self._demonstrations = load_demonstrations(config, task)
        demonstrated = 0 if self._demonstrations is None else self._demonstrations.total_steps
        # A run cannot fill more than its steps.
        capacity = min(config.buffer_size, config.total_steps + task.num_envs + demonstrated)
        self._replay = ReplayBuffer(task.observation_space, size, task.num_envs, capacity, config.seed)
        self._noise = PersistentNoise(task.num_envs, size, config.noise_correlation, task.device)
        self._rewards = reward_scaling_for(config, task)
        self._collected = 0
        self._updates_owed = 0.0
        self._compiled, self.plan = self._choose()

    def _choose(self) -> tuple[CompiledSAC | None, str]:
        """What computes the updates: compiled code, or None for torch; and a text that says so."""
        # Not for a class derived from this one, which may have an update of its own.
        own = None if type(self) is SAC else "the algorithm is not one of envfleet's"
        why = choose(self._config, own or CompiledSAC.why_not(self.actor, self.critic))
        if why is not None:
            return None, f"torch: {why}"
        made = CompiledSAC(self._config, self.modules, self.optimizers, self._target_entropy)
        return made, f"compiled code ({made.kernels})"

    @classmethod
    def actor_for(cls, config: SACConfig, task: Task) -> Actor:
        """The user's actor, or a perceptron as the configuration describes it."""
        return make_actor(task, layout_of(config), squashed=True)

    @torch.inference_mode()
    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:
        """Actions drawn from the policy, one per row of the batch; uniform between -1 and 1 before learning starts."""
        noise = self._noise.draw(env_ids)
        if self._collected < self._config.learning_starts:
            actions = uniform(noise)
        else:
            distribution = self.actor.distribution
            assert isinstance(distribution, SquashedNormal)
            if self._compiled is not None and isinstance(observations, np.ndarray):
                outputs = self._compiled.outputs(observations)
            else:
                outputs = self.actor(to_tensors(observations, self._device))
            actions = distribution.sample_with_noise(outputs, noise)
        explored: Array = actions.reshape(-1, *self._action_shape).cpu().numpy()
        return explored

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Remember the rollout, then take the gradient steps it is due; metrics are NaN where there were none."""
        config = self._config
        if self._demonstrations is not None and not self._collected:
            for demonstrated in rollouts_of(self._demonstrations, self._num_envs):
                self._remember(demonstrated)
        self._remember(rollout)
        self._collected += rollout.transitions
        if self._collected < config.learning_starts:
            return dict.fromkeys(METRICS, math.nan)
        self._set_learning_rates(1 - progress if config.anneal else 1.0)
        self._updates_owed += rollout.transitions * config.updates_per_step
        updates = int(self._updates_owed)
        self._updates_owed -= updates
        steps = config.return_steps if progress < config.multi_step_share else 1
        sums = self._updates(updates, steps)
        # Without updates that is 0 / 0, which is what it should say: not a number.
        return dict(zip(METRICS, (sums / updates).tolist(), strict=True))

    def has_learned(self, steps: int) -> bool:
        """From `learning_starts` on, and once a whole update is due."""
        return (steps - self._config.learning_starts) * self._config.updates_per_step >= 1

    def extra_tensors(self) -> dict[str, Tensor]:
        """The replay buffer, the statistics of rewards if they are normalised, and how far the run has come."""
        return {
            **self._rewards.tensors(),
            **{f"replay.{name}": tensor for name, tensor in self._replay.tensors().items()},
            "noise": self._noise.state(),
            "collected": torch.tensor(self._collected),
            "updates_owed": torch.tensor(self._updates_owed, dtype=torch.float64),
        }

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `extra_tensors` gave."""
        ours = {name.removeprefix("replay."): tensor for name, tensor in tensors.items() if name.startswith("replay.")}
        self._replay.load_tensors(ours)
        self._rewards.load_tensors(tensors)
        self._noise.load_state(tensors["noise"])
        self._collected = int(tensors["collected"])
        self._updates_owed = float(tensors["updates_owed"])

    def _updates(self, count: int, steps: int) -> Tensor:
        """So many updates from transitions of so many steps; the metrics added up."""
        config, sums = self._config, torch.zeros(len(METRICS), device=self._device)
        if self._compiled is not None and count:
            # Drawn at once they are the same as drawn one batch after another.
            drawn = self._replay.sample(count * config.batch_size, self._device, steps=steps, gamma=config.gamma)
            return self._compiled.updates(drawn, count, self._rewards.factor)
        for _ in range(count):
            sums += self._update(self._replay.sample(config.batch_size, self._device, steps=steps, gamma=config.gamma))
        return sums

    def _update(self, batch: Transitions) -> Tensor:
        config = self._config
        temperature = self._temperature()
        targets = critic_targets(self.actor, self._target_critic, batch, temperature, self._rewards.factor)
        with self._critic_training:
            value_error, value = critic_loss(self.critic, batch, targets)
        gradient_step(value_error, self._critic_optimizer, config.max_grad_norm, of="critic")
        with self._actor_training:
            policy_loss, log_prob = actor_loss(self.actor, self.critic, batch, temperature)
        gradient_step(policy_loss, self._actor_optimizer, config.max_grad_norm, of="actor")
        price_error = temperature_loss(self._temperature, log_prob, self._target_entropy)
        gradient_step(price_error, self._temperature_optimizer, of="temperature")
        torch._foreach_lerp_(self._target_weights, self._critic_weights, config.tau)
        return torch.stack([policy_loss.detach(), value_error.detach(), -log_prob, temperature, value])

    def _remember(self, rollout: Rollout) -> None:
        self._replay.add(rollout)
        self._rewards.count(rollout)
        self._observe(rollout)

    def _set_learning_rates(self, remaining: float) -> None:
        config = self._config
        set_learning_rate(self._actor_optimizer, config.actor_lr * remaining)
        set_learning_rate(self._critic_optimizer, config.critic_lr * remaining)
        set_learning_rate(self._temperature_optimizer, config.temperature_lr * remaining)

    def _observe(self, rollout: Rollout) -> None:
        rows = np.flatnonzero(rollout.valid)
        observations = to_tensors(map_leaves(lambda leaf: leaf[rows], flattened(rollout.observations)), self._device)
        observe(self.actor, observations)
        observe(self.critic, observations)
        for theirs, ours in zip(self._target_critic.buffers(), self.critic.buffers(), strict=True):
            theirs.copy_(ours)


def make_critic(task: Task, layout: Layout) -> nn.Module:
    """The user's pair of critics, or ours."""
    if task.networks:
        return task.networks.critic.to(task.device).eval()
    size = math.prod(action_shape(task.action_space))
    return TwinCritic(task.observation_space, size, layout).to(task.device).eval()
