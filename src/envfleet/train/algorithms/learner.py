"""What the training loop needs of an algorithm, and what algorithms that learn from their latest rollout share.

rollout ──▶ values along it (critic) ──▶ advantages and returns (GAE) ──▶ batch ──▶ the algorithm's own update
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.nn import functional

from envfleet.errors import NonFiniteError
from envfleet.train.algorithms.compiled import CompiledUpdate, choose
from envfleet.train.algorithms.returns import explained_variance, gae
from envfleet.train.algorithms.reward_scaling import RewardScaling
from envfleet.train.collecting import Policy, Rollout, Rows
from envfleet.train.config import A2CConfig, PPOConfig, TrainConfig
from envfleet.train.finite import all_finite, check_gradient, check_loss, first_exceeding
from envfleet.train.networks.compiled_policy import CompiledPolicy, why_no_compiled_policy
from envfleet.train.networks.distributions import ActionDistribution, distribution_for
from envfleet.train.networks.encoders import orthogonal
from envfleet.train.networks.memory import MemoryActor
from envfleet.train.networks.modes import TrainingMode
from envfleet.train.networks.networks import Actor, Critic, Layout, Networks, Perceptron, observe
from envfleet.train.networks.quick_policy import QuickPolicy
from envfleet.train.observations import Array, Observations, Tensors, flattened, joined, map_leaves, to_tensors

Config = TypeVar("Config", bound="A2CConfig | PPOConfig")


@dataclass(frozen=True, eq=False)
class Task:
    """What an algorithm is to learn, and where.

    Attributes:
        observation_space: of a single environment.
        action_space: of a single environment.
        num_envs: how many there are.
        device: the torch device of the networks.
        networks: the user's own, or None for ours.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    num_envs: int
    device: torch.device
    networks: Networks | None = None


class Learner(Protocol):
    """An algorithm: it acts, and it learns from what came of it.

    Attributes:
        rollout_steps: steps of every environment it wants to see between two calls of `learn`.
        off_policy: whether it learns from whatever there is, and not only from its latest policy's whole rollouts.
        needs_bounded_actions: if it is there and True, environments whose actions have infinite bounds are refused.
        needs_resets: if it is there and True, `act` is told where episodes begin: `act(observations, env_ids, resets)`
            with bool[rows]; the rollout then says the same as `rollout.resets`.
        modules: every network by name, for checkpoints; "actor" and "critic" are saved as weights too. They are in
            evaluation mode except within `learn`, where a loss is worked out whose gradient moves them.
        optimizers: every optimiser by name, for checkpoints; those of `make_optimizer`.
        plan: if it is there, a text that says what computes the updates and why.
    """

    rollout_steps: int
    off_policy: bool
    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]

    def __init__(self, config: Any, task: Task) -> None: ...

    @property
    def actor(self) -> Actor | MemoryActor:
        """The policy, which is what is kept in the end."""
        ...

    @classmethod
    def actor_for(cls, config: Any, task: Task) -> Actor | MemoryActor:
        """A fresh policy alone, without all that only learning needs: what a trained agent's weights are put into."""
        ...

    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:
        """Actions to explore with, one per row; `env_ids` says whose observations these are, None: everybody's."""
        ...

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Learn from a rollout; `progress` goes from 0 to 1 over the run. Returns metrics for the log."""
        ...

    def has_learned(self, steps: int) -> bool:
        """Whether a run of so many environment steps must have taken a gradient step."""
        ...

    def extra_tensors(self) -> dict[str, Tensor]:
        """What else a checkpoint must hold."""
        ...

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `extra_tensors` gave."""
        ...


class OnPolicyLearner(ABC, Generic[Config]):
    """A `Learner` with an actor and a critic of its own each, which learns from its latest policy's rollout alone.

    A subclass says what an update is: `update`, and the names of the metrics that gives: `metrics`. It may give other
    networks (`actor_for`, `critic_for`), and in its `__init__` add to `modules`, or replace `optimizers`.

    Attributes:
        networks: actor and critic together, for an optimiser of both; what they share is in it once.
    """

    off_policy = False
    metrics: ClassVar[tuple[str, ...]]
    """What `update` returns, by name."""
    compiled: ClassVar[type[CompiledUpdate[Any]] | None] = None
    """What does the same as `update` in compiled code, if there is such a thing. It is not inherited."""

    def __init__(self, config: Config, task: Task) -> None:
        self.config = config
        self.device = task.device
        self.rollout_steps = config.rollout_steps
        self.actor = self.actor_for(config, task)
        self.critic = self.critic_for(config, task)
        self.networks = nn.ModuleList([self.actor, self.critic])
        self._training_mode = TrainingMode(self.actor, self.critic)
        self._policy = make_policy(self.actor, task, config.rollout_steps, compiled=config.learner != "torch")
        self._rewards = reward_scaling_for(config, task)
        self.actor_optimizer = make_optimizer(self.actor, config.actor_lr, config.adam_beta2)
        self.critic_optimizer = make_optimizer(self.critic, config.critic_lr, config.adam_beta2)
        self.modules: Mapping[str, nn.Module] = {"actor": self.actor, "critic": self.critic}
        self.optimizers: Mapping[str, torch.optim.Optimizer] = {
            "actor": self.actor_optimizer,
            "critic": self.critic_optimizer,
        }
        self._compiled, self.plan = self._choose()

    def _choose(self) -> tuple[CompiledUpdate[Any] | None, str]:
        """What computes the updates: compiled code, or None for torch; and a text that says so."""
        config, compiled = self.config, vars(type(self)).get("compiled")
        if compiled is None:
            why = choose(config, "the algorithm is not one of envfleet's")
        else:
            why = choose(config, compiled.why_not(config, self.actor, self.critic))
        if why is not None or compiled is None:
            return None, f"torch: {why}"
        made = compiled(config, self.actor, self.critic, self.actor_optimizer, self.critic_optimizer)
        return made, f"compiled code ({made.kernels})"

    @classmethod
    def actor_for(cls, config: Config, task: Task) -> Actor:
        """The user's actor, or a perceptron as the configuration describes it."""
        return make_actor(task, layout_of(config), initial_log_std=config.initial_log_std)

    def critic_for(self, config: Config, task: Task) -> Critic:
        """The user's critic, or a perceptron; a subclass may give one that shares layers with `self.actor`."""
        return make_critic(task, layout_of(config))

    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:  # noqa: ARG002  nobody is special
        """Actions drawn from the policy, one per row."""
        return self._policy(observations)

    @property
    def compiled_policy(self) -> CompiledPolicy | None:
        """What draws the actions, if that is compiled code."""
        return self._policy if isinstance(self._policy, CompiledPolicy) else None

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """One update from a rollout, with step sizes and entropy bonus as they are at this point of the run."""
        config = self.config
        self._rewards.count(rollout)
        if not rollout.transitions:  # all of it was dropped
            return dict.fromkeys((*self.metrics, "learning_rate", "explained_variance"), math.nan)
        remaining = 1 - progress if config.anneal else 1.0
        for name, optimizer in self.optimizers.items():
            set_learning_rate(optimizer, self.step_size_of(name) * remaining)
        scale, gamma, lam = self._rewards.factor, config.gamma, config.gae_lambda
        values = self._compiled.values if self._compiled else self.critic
        batch = make_batch(rollout, values, self.device, reward_scale=scale, gamma=gamma, lam=lam)
        with self._training_mode:
            update = self._compiled or self.update
            metrics = update(batch, config.entropy_coef * remaining)
        # Statistics move only now, so that the policy learns with the ones it acted with.
        observe(self.networks, batch.observations)
        return {
            **metrics,
            "learning_rate": config.actor_lr * remaining,
            "explained_variance": batch.explained_variance,
        }

    def step_size_of(self, optimizer: str) -> float:
        """What the step size of one of `optimizers` starts at: `critic_lr` for the critic's, `actor_lr` for others."""
        return self.config.critic_lr if optimizer == "critic" else self.config.actor_lr

    @abstractmethod
    def update(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """Moves actor and critic, which are in training mode, by `gradient_step`; returns `metrics`."""

    def has_learned(self, steps: int) -> bool:
        """Every rollout is learnt from."""
        return steps > 0

    def extra_tensors(self) -> dict[str, Tensor]:
        """The statistics of rewards, if they are normalised. A subclass with tensors of its own adds them to these."""
        return self._rewards.tensors()

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `extra_tensors` gave."""
        self._rewards.load_tensors(tensors)


@dataclass(frozen=True, eq=False)
class Batch:
    """The valid transitions of a rollout in one row, as tensors on the device.

    Attributes:
        observations: [n, ...].
        actions: [n, ...].
        advantages: float32[n].
        returns: what the critic is to predict, float32[n].
        values: what it predicted before, float32[n].
        explained_variance: how well that explains the returns.
    """

    observations: Tensors
    actions: Tensor
    advantages: Tensor
    returns: Tensor
    values: Tensor
    explained_variance: float

    def __len__(self) -> int:
        return len(self.advantages)

    def at(self, rows: Tensor) -> Batch:
        """Only the given rows, int64[m]."""
        return Batch(
            map_leaves(lambda leaf: leaf[rows], self.observations),
            self.actions[rows],
            self.advantages[rows],
            self.returns[rows],
            self.values[rows],
            self.explained_variance,
        )


def make_batch(
    rollout: Rollout,
    critic: Callable[[Tensors], Tensor],
    device: torch.device,
    *,
    reward_scale: float,
    gamma: float,
    lam: float,
) -> Batch:
    """Values, advantages and returns of a rollout; rows that are no transition are left out."""
    values, next_values = values_along(rollout, critic, device)
    advantages, returns = advantages_and_returns(rollout, values, next_values, reward_scale, gamma, lam)
    rows = np.flatnonzero(rollout.valid)
    everything = len(rows) == rollout.valid.size

    def picked(array: Array) -> Array:
        return array if everything else array[rows]

    return Batch(
        to_tensors(map_leaves(picked, flattened(rollout.observations)), device),
        torch.from_numpy(picked(rollout.actions.reshape(-1, *rollout.actions.shape[2:]))).to(device),
        float_tensor(picked(advantages.ravel()), device),
        float_tensor(picked(returns.ravel()), device),
        float_tensor(picked(values.ravel()), device),
        explained_variance(picked(values.ravel()), picked(returns.ravel())),
    )


def advantages_and_returns(
    rollout: Rollout,
    values: npt.NDArray[np.float64],
    next_values: npt.NDArray[np.float64],
    reward_scale: float,
    gamma: float,
    lam: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Advantages and returns of a rollout, float64[steps, num_envs] each; numbers that are not finite are refused.

    Args:
        rollout: what happened.
        values: V(state) of every transition, float64[steps, num_envs].
        next_values: V(next state), the same.
        reward_scale: what rewards are multiplied by.
        gamma: discount factor.
        lam: as for `gae`.
    """
    _check(values, "value of a state")
    _check(next_values, "value of a state")
    ends = rollout.done
    # Nothing flows back from a row that is no transition: after a restart the episode had ended with the row before.
    ends[:-1] |= ~rollout.valid[1:]
    rewards = rollout.rewards * reward_scale
    advantages = gae(rewards, values, next_values, rollout.terminated, ends, gamma, lam)
    returns = advantages + values
    _check(advantages, "advantage of an action")
    _check(returns, "return of a state")
    return advantages, returns


@torch.no_grad()
def values_along(
    rollout: Rollout, critic: Callable[[Tensors], Tensor], device: torch.device
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """V(state) and V(next state) of every transition, float64[steps, num_envs] each.

    The next state of an episode's last step is its final observation, whatever the autoreset mode put into the row
    after it; that of the rollout's last step is where the fleet stood afterwards.
    """
    steps, num_envs = rollout.rewards.shape
    everything = joined(flattened(rollout.observations), rollout.end.observations, rollout.final_observations)
    all_values = critic(to_tensors(everything, device)).double().cpu().numpy()
    along, finals = np.split(all_values, [(steps + 1) * num_envs])
    along = along.reshape(steps + 1, num_envs)
    next_values = along[1:].copy()
    next_values[rollout.done] = finals
    return along[:-1], next_values


def critic_loss(critic: Critic, batch: Batch) -> Tensor:
    """Half the mean squared error of the values."""
    return 0.5 * functional.mse_loss(critic(batch.observations), batch.returns)


def normalized(advantages: Tensor) -> Tensor:
    """Mean 0 and variance 1; a single one, such as what is left over for the last minibatch, becomes 0."""
    deviation = advantages.std(correction=min(1, len(advantages) - 1))
    return (advantages - advantages.mean()) / (deviation + 1e-8)


def gradient_step(
    loss: Tensor, optimizer: torch.optim.Optimizer, max_grad_norm: float = 0.0, *, of: str = "network"
) -> None:
    """One step of the optimiser's own parameters, the gradient shortened to `max_grad_norm` (0: as it is).

    A loss, or a gradient to be shortened, that is not finite is refused before anything has moved; `of` says whose it
    is.
    """
    check_loss(loss, of)
    groups = optimizer.param_groups
    parameters = groups[0]["params"] if len(groups) == 1 else [one for group in groups for one in group["params"]]
    # Not backward(): that would work out, and leave behind, the gradients of other networks the loss depends on.
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    if max_grad_norm > 0:
        _shorten([gradient for gradient in gradients if gradient is not None], max_grad_norm, of)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def _shorten(gradients: list[Tensor], longest: float, of: str) -> None:
    """What torch.nn.utils.clip_grad_norm_ does, without sorting by device first: a third of its time."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    check_gradient(norm, of)
    torch._foreach_mul_(gradients, (longest / (norm + 1e-6)).clamp(max=1.0))


def make_optimizer(module: nn.Module, rate: float, beta2: float = 0.999) -> torch.optim.Optimizer:
    """Adam over a network's parameters.

    Adam divides by the size its gradients had over the last 1 / (1 - beta2) steps: a thousand with 0.999. A policy that
    learns from its latest rollout alone changes faster than that: after a quiet time a sudden large gradient is divided
    by what is long out of date, and the step ruins the policy. With 0.99 it looks back a hundred steps.
    """
    return torch.optim.Adam(module.parameters(), rate, betas=(0.9, beta2), fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """From now on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def layout_of(config: TrainConfig) -> Layout:
    """What networks of ours look like under a configuration."""
    return Layout(config.hidden_sizes, config.activation, config.normalize_observations)


def reward_scaling_for(config: TrainConfig, task: Task) -> RewardScaling:
    """How rewards are scaled under a configuration."""
    return RewardScaling(task.num_envs, config.gamma, config.reward_scale, normalize=config.normalize_rewards)


def make_actor(
    task: Task, layout: Layout, distribution: ActionDistribution | None = None, initial_log_std: float = 0.0
) -> Actor:
    """The user's actor, or a perceptron whose first outputs are close to 0.

    Args:
        task: what is to be learnt.
        layout: of our perceptron.
        distribution: what the outputs are for; by default the usual one for the actions.
        initial_log_std: the logarithm of the deviation that actions begin with, where it is learnt beside the outputs.
    """
    distribution = distribution or distribution_for(task.action_space)
    outputs = distribution.network_outputs
    body = task.networks.actor if task.networks else Perceptron(task.observation_space, outputs, layout, last_gain=0.01)
    return Actor(body, distribution, initial_log_std).to(task.device).eval()


def head_for(task: Task, features: int, initial_log_std: float = 0.0) -> Actor:
    """One layer from features [batch, features] to the policy, which is close to uniform at first."""
    distribution = distribution_for(task.action_space)
    outputs = distribution.outputs // 2 if distribution.learns_std else distribution.outputs
    return Actor(orthogonal(nn.Linear(features, outputs), 0.01), distribution, initial_log_std)


def make_critic(task: Task, layout: Layout) -> Critic:
    """The user's critic, or a perceptron with one output."""
    body = (
        task.networks.required_critic()
        if task.networks
        else Perceptron(task.observation_space, 1, layout, last_gain=1.0)
    )
    return Critic(body).to(task.device).eval()


def make_policy(actor: Actor, task: Task, steps: int, *, compiled: bool = False) -> Policy:
    """A function that draws actions from the actor's policy; `steps` is how often it is called per rollout."""
    if compiled and why_no_compiled_policy(actor) is None:
        return CompiledPolicy(actor, steps)
    if QuickPolicy.suits(actor, task.num_envs, task.device):
        return QuickPolicy(actor, steps)

    def act(observations: Observations) -> Array:
        with torch.inference_mode():
            actions: Array = actor.distribution.sample(actor(to_tensors(observations, task.device))).cpu().numpy()
        return actions

    return act


def _check(numbers: npt.NDArray[np.float64], what: str) -> None:
    """Refuse numbers of the critic's, [steps, num_envs], that float32 cannot hold."""
    if not all_finite(numbers):
        found = first_exceeding(numbers)
        assert found is not None
        env = found.place[1]
        message = f"The {what} in environment {env}, as the critic sees it, is {found.value:g}."
        raise NonFiniteError(message, quantity=what, env_index=env)


def float_tensor(array: npt.NDArray[np.float64], device: torch.device) -> Tensor:
    """Numbers as networks take them."""
    return torch.from_numpy(array.astype(np.float32)).to(device)
