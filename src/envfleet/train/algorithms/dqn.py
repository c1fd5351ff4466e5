"""Deep Q-network (DQN): off-policy, for one choice among a number of actions.

    rollout ──▶ replay buffer ──▶ batch, `updates_per_step` times per transition:
        actor    Huber loss of the value of what was done to  rewards of some steps + what follows them: gamma to their
                 power · the target's value of the best choice in the state they led to
        target   a share `tau` of the way to the actor

One network: the value of every choice. What it values most is what the policy does; now and then it does anything, to
explore. `double`: the network itself says which choice is best, the target what that is worth. `dueling`: the network
is one of envfleet's `DuelingPerceptron`. Transitions may be drawn by how wrong their estimates were.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from envfleet.train.algorithms.compiled_dqn import CompiledDQN
from envfleet.train.algorithms.learner import Task, gradient_step, layout_of, make_actor, make_optimizer
from envfleet.train.algorithms.off_policy import OffPolicyLearner, SlowCopy
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.collecting import Rows
from envfleet.train.config import DQNConfig
from envfleet.train.networks.exploring import EpsilonGreedy, epsilon_greedy
from envfleet.train.networks.networks import Actor, DuelingPerceptron
from envfleet.train.observations import Array, Observations


@torch.no_grad()
def value_targets(actor: Actor, target: nn.Module, batch: Transitions, reward_scale: float, *, double: bool) -> Tensor:
    """What the values of the actions that were taken are to be, float32[n]."""
    values: Tensor = target(batch.next_observations)
    best = (actor(batch.next_observations) if double else values).argmax(-1, keepdim=True)
    following = values.gather(-1, best).squeeze(-1)
    return reward_scale * batch.rewards + batch.discounts * (1 - batch.terminated) * following


def value_loss(actor: Actor, batch: Transitions, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Huber loss, by how much each value [n] is above its target, and the mean value."""
    assert isinstance(actor.distribution, EpsilonGreedy)
    choices = batch.actions.long() - actor.distribution.start
    values = actor(batch.observations).gather(-1, choices).squeeze(-1)
    losses = functional.huber_loss(values, targets, reduction="none")
    loss = losses.mean() if batch.weights is None else (batch.weights * losses).mean()
    return loss, (values - targets).detach(), values.detach().mean()


class DQN(OffPolicyLearner[DQNConfig]):
    """The algorithm with its network, optimiser and replay buffer; a `Learner`."""

    metrics = ("critic_loss", "q_value", "epsilon")

    def __init__(self, config: DQNConfig, task: Task) -> None:
        super().__init__(config, task, config.priority_exponent)
        self._target = SlowCopy(self.actor)
        optimizer = make_optimizer(self.actor, config.learning_rate, config.adam_beta2)
        self.assemble({"actor": self.actor}, {"target_actor": self._target}, {"actor": optimizer})

    @classmethod
    def actor_for(cls, config: DQNConfig, task: Task) -> Actor:
        """The user's network, or one of ours as the configuration describes it."""
        policy = epsilon_greedy(task.action_space, config.final_epsilon)
        if task.networks is not None and task.networks.critic is not None:
            raise TypeError("DQN has one network, which values every choice: networks=Networks(actor=...), no critic.")
        if task.networks is None and config.dueling:
            body = DuelingPerceptron(task.observation_space, policy.outputs, layout_of(config), last_gain=0.01)
            return Actor(body, policy).to(task.device).eval()
        return make_actor(task, layout_of(config), policy)

    @property
    def epsilon(self) -> float:
        """The probability of a random action now: 1 before learning starts, falling in a straight line afterwards."""
        config = self.config
        so_far = max(0, self.collected - config.learning_starts) / config.total_steps
        left = 1 - so_far / config.exploration_share if so_far < config.exploration_share else 0.0
        return 1.0 if self.warming_up else config.final_epsilon + (1 - config.final_epsilon) * left

    @torch.inference_mode()
    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:  # noqa: ARG002  nobody is special
        """The best choices, one per row of the batch, and now and then any."""
        policy = self.actor.distribution
        assert isinstance(policy, EpsilonGreedy)
        return self.as_actions(policy.explored(self.outputs(observations), self.epsilon))

    def update(self, batch: Transitions) -> Tensor:
        """One step of the network; its target follows."""
        config = self.config
        targets = value_targets(self.actor, self._target.network, batch, self.reward_factor, double=config.double)
        with self.training["actor"]:
            loss, errors, value = value_loss(self.actor, batch, targets)
        gradient_step(loss, self.optimizers["actor"], config.max_grad_norm, of="actor")
        if batch.slots is not None:
            self.replay.prioritize(batch.slots, errors.cpu().numpy())
        self._target.approach(config.tau)
        return torch.stack([loss.detach(), value, torch.full_like(value, self.epsilon)])

    def why_not_compiled(self) -> str | None:
        """Not for a class derived from this one, which may have an update of its own."""
        return CompiledDQN.why_not(self.actor) if type(self) is DQN else super().why_not_compiled()

    def make_compiled(self) -> CompiledDQN:
        """The same mathematics as `update`."""
        return CompiledDQN(self.config, self.modules, self.optimizers)

    def compiled_update(self, batches: Transitions, count: int) -> Tensor:
        """So many updates in compiled code; what was drawn gets its priority."""
        assert isinstance(self._compiled, CompiledDQN)
        loss, value = self._compiled.updates(batches, count, self.reward_factor)
        if batches.slots is not None:
            self.replay.prioritize(batches.slots, self._compiled.errors)
        return torch.stack([loss, value, torch.full_like(loss, count * self.epsilon)])

    def step_size_of(self, optimizer: str) -> float:  # noqa: ARG002  there is one
        """What the learning rate starts at."""
        return self.config.learning_rate

    def correction(self, progress: float) -> float:
        """From `priority_correction` to all of it."""
        return self.config.priority_correction + (1 - self.config.priority_correction) * progress
