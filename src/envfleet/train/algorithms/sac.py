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

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from envfleet.train.algorithms.compiled_sac import CompiledSAC
from envfleet.train.algorithms.exploration import PersistentNoise, uniform
from envfleet.train.algorithms.learner import Task, gradient_step, layout_of, make_actor, make_optimizer
from envfleet.train.algorithms.off_policy import OffPolicyLearner, SlowCopy, check_pair, make_twin_critic
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.collecting import Rows
from envfleet.train.config import SACConfig
from envfleet.train.networks.distributions import SquashedNormal, distribution_for
from envfleet.train.networks.networks import Actor
from envfleet.train.observations import Array, Observations, Tensors


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
    check_pair(values, len(targets), "SAC")
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


class SAC(OffPolicyLearner[SACConfig]):
    """The algorithm with its networks, optimisers and replay buffer; a `Learner`."""

    needs_bounded_actions = True
    metrics = ("actor_loss", "critic_loss", "entropy", "temperature", "q_value")

    def __init__(self, config: SACConfig, task: Task) -> None:
        super().__init__(config, task)
        self.critic = make_twin_critic(task, layout_of(config))
        self._target_critic = SlowCopy(self.critic)
        self._temperature = Temperature(config.initial_temperature).to(task.device)
        self._target_entropy = -float(self.action_size) if config.target_entropy is None else config.target_entropy
        self._noise = PersistentNoise(task.num_envs, self.action_size, config.noise_correlation, task.device)
        networks = {"actor": self.actor, "critic": self.critic, "temperature": self._temperature}
        rates = {"actor": config.actor_lr, "critic": config.critic_lr, "temperature": config.temperature_lr}
        optimizers = {name: make_optimizer(networks[name], rates[name], config.adam_beta2) for name in networks}
        self.assemble(networks, {"target_critic": self._target_critic}, optimizers)

    @classmethod
    def actor_for(cls, config: SACConfig, task: Task) -> Actor:
        """The user's actor, or a perceptron as the configuration describes it."""
        return make_actor(task, layout_of(config), distribution_for(task.action_space, squashed=True))

    @torch.inference_mode()
    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:
        """Actions drawn from the policy, one per row of the batch; uniform between -1 and 1 before learning starts."""
        noise = self._noise.draw(env_ids)
        if self.warming_up:
            return self.as_actions(uniform(noise))
        distribution = self.actor.distribution
        assert isinstance(distribution, SquashedNormal)
        return self.as_actions(distribution.sample_with_noise(self.outputs(observations), noise))

    def update(self, batch: Transitions) -> Tensor:
        """One step of the critics, the actor and the temperature; the target critics follow."""
        config, temperature = self.config, self._temperature()
        targets = critic_targets(self.actor, self._target_critic.network, batch, temperature, self.reward_factor)
        with self.training["critic"]:
            value_error, value = critic_loss(self.critic, batch, targets)
        gradient_step(value_error, self.optimizers["critic"], config.max_grad_norm, of="critic")
        with self.training["actor"]:
            policy_loss, log_prob = actor_loss(self.actor, self.critic, batch, temperature)
        gradient_step(policy_loss, self.optimizers["actor"], config.max_grad_norm, of="actor")
        price_error = temperature_loss(self._temperature, log_prob, self._target_entropy)
        gradient_step(price_error, self.optimizers["temperature"], of="temperature")
        self._target_critic.approach(config.tau)
        return torch.stack([policy_loss.detach(), value_error.detach(), -log_prob, temperature, value])

    def why_not_compiled(self) -> str | None:
        """Not for a class derived from this one, which may have an update of its own."""
        return CompiledSAC.why_not(self.actor, self.critic) if type(self) is SAC else super().why_not_compiled()

    def make_compiled(self) -> CompiledSAC:
        """The same mathematics as `update`."""
        return CompiledSAC(self.config, self.modules, self.optimizers, self._target_entropy)

    def extra_tensors(self) -> dict[str, Tensor]:
        """Those of every such algorithm, and the noise under way."""
        return {**super().extra_tensors(), "noise": self._noise.state()}

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `extra_tensors` gave."""
        super().load_extra_tensors(tensors)
        self._noise.load_state(tensors["noise"])
