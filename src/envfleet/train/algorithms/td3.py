"""Twin delayed deep deterministic policy gradient (TD3): off-policy, for continuous actions.

    rollout ──▶ replay buffer ──▶ batch, `updates_per_step` times per transition:
        critic   squared error of both estimates to  rewards of some steps + what follows them: gamma to their power
                 · min of both target estimates, for the target policy's action and some noise, where they led to
        actor    - first estimate, for the policy's action; once in `policy_delay` updates
        targets  a share `tau` of the way to the critics and the actor, as often

The policy does not explore by itself: noise is added to its actions. Only episodes that ended by themselves have no
next state.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from envfleet.train.algorithms.compiled_td3 import CompiledTD3
from envfleet.train.algorithms.exploration import PersistentNoise, uniform
from envfleet.train.algorithms.learner import Task, gradient_step, layout_of, make_actor, make_optimizer
from envfleet.train.algorithms.off_policy import OffPolicyLearner, SlowCopy, check_pair, make_twin_critic
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.collecting import Rows
from envfleet.train.config import TD3Config
from envfleet.train.networks.exploring import NoisyTanh, noisy_tanh
from envfleet.train.networks.networks import Actor
from envfleet.train.observations import Array, Observations, Tensors


@torch.no_grad()
def critic_targets(
    target_actor: Actor, target_critic: nn.Module, batch: Transitions, noise: Tensor, reward_scale: float
) -> Tensor:
    """What both critics are to predict, float32[n], for actions that `noise` [n, components] is added to."""
    actions = (policy_actions(target_actor, batch.next_observations) + noise).clamp(-1, 1)
    values: Tensor = target_critic(batch.next_observations, actions).amin(-1)
    return reward_scale * batch.rewards + batch.discounts * (1 - batch.terminated) * values


def critic_loss(critic: nn.Module, batch: Transitions, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Half the squared error of each critic, added; and the mean estimate."""
    values: Tensor = critic(batch.observations, batch.actions)
    check_pair(values, len(targets), "TD3")
    return functional.mse_loss(values, targets.unsqueeze(-1).expand_as(values)), values.detach().mean()


def actor_loss(actor: Actor, critic: nn.Module, batch: Transitions) -> Tensor:
    """What the policy is to make small."""
    values: Tensor = critic(batch.observations, policy_actions(actor, batch.observations))
    return -values[:, 0].mean()


def policy_actions(actor: Actor, observations: Tensors) -> Tensor:
    """What the policy does, [n, components]; differentiable."""
    actions = actor.distribution.mode(actor(observations))
    return actions.reshape(len(actions), -1)


class TD3(OffPolicyLearner[TD3Config]):
    """The algorithm with its networks, optimisers and replay buffer; a `Learner`."""

    needs_bounded_actions = True
    metrics = ("actor_loss", "critic_loss", "q_value")

    def __init__(self, config: TD3Config, task: Task) -> None:
        super().__init__(config, task)
        self.critic = make_twin_critic(task, layout_of(config))
        self._target_actor, self._target_critic = SlowCopy(self.actor), SlowCopy(self.critic)
        self._noise = PersistentNoise(task.num_envs, self.action_size, config.noise_correlation, task.device)
        self._updated = 0
        optimizers = {
            "actor": make_optimizer(self.actor, config.actor_lr, config.adam_beta2),
            "critic": make_optimizer(self.critic, config.critic_lr, config.adam_beta2),
        }
        copies = {"target_actor": self._target_actor, "target_critic": self._target_critic}
        self.assemble({"actor": self.actor, "critic": self.critic}, copies, optimizers)

    @classmethod
    def actor_for(cls, config: TD3Config, task: Task) -> Actor:
        """The user's actor, or a perceptron as the configuration describes it."""
        return make_actor(task, layout_of(config), noisy_tanh(task.action_space, config.exploration_noise))

    @torch.inference_mode()
    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:
        """The policy's actions with noise, one per row; uniform between -1 and 1 before learning starts."""
        noise = self._noise.draw(env_ids)
        if self.warming_up:
            return self.as_actions(uniform(noise))
        distribution = self.actor.distribution
        assert isinstance(distribution, NoisyTanh)
        return self.as_actions(distribution.sample_with_noise(self.outputs(observations), noise))

    def update(self, batch: Transitions) -> Tensor:
        """One step of the critics; once in a while one of the actor, and the targets follow."""
        config, clip = self.config, self.config.target_noise_clip
        noise = (config.target_noise * torch.randn_like(batch.actions)).clamp(-clip, clip)
        target_actor = self._target_actor.network
        assert isinstance(target_actor, Actor)
        targets = critic_targets(target_actor, self._target_critic.network, batch, noise, self.reward_factor)
        with self.training["critic"]:
            value_error, value = critic_loss(self.critic, batch, targets)
        gradient_step(value_error, self.optimizers["critic"], config.max_grad_norm, of="critic")
        self._updated += 1
        # Added up and divided by the number of all updates, this becomes the mean of those that there are.
        policy_loss = torch.zeros_like(value)
        if self._updated % config.policy_delay == 0:
            with self.training["actor"]:
                loss = actor_loss(self.actor, self.critic, batch)
            gradient_step(loss, self.optimizers["actor"], config.max_grad_norm, of="actor")
            self._target_actor.approach(config.tau)
            self._target_critic.approach(config.tau)
            policy_loss = config.policy_delay * loss.detach()
        return torch.stack([policy_loss, value_error.detach(), value])

    def why_not_compiled(self) -> str | None:
        """Not for a class derived from this one, which may have an update of its own."""
        return CompiledTD3.why_not(self.actor, self.critic) if type(self) is TD3 else super().why_not_compiled()

    def make_compiled(self) -> CompiledTD3:
        """The same mathematics as `update`."""
        return CompiledTD3(self.config, self.modules, self.optimizers)

    def compiled_update(self, batches: Transitions, count: int) -> Tensor:
        """So many updates in compiled code; the actor's turn depends on how many there were before."""
        assert isinstance(self._compiled, CompiledTD3)
        sums = self._compiled.updates(batches, count, self.reward_factor, done=self._updated)
        self._updated += count
        return sums

    def extra_tensors(self) -> dict[str, Tensor]:
        """Those of every such algorithm, the noise under way, and how many updates there have been."""
        own = {"noise": self._noise.state(), "updated": torch.tensor(self._updated)}
        return {**super().extra_tensors(), **own}

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `extra_tensors` gave."""
        super().load_extra_tensors(tensors)
        self._noise.load_state(tensors["noise"])
        self._updated = int(tensors["updated"])
