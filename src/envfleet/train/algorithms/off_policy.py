"""What algorithms share that learn from a replay buffer: SAC, TD3, DQN.

rollout ──▶ replay buffer ──▶ batch, `updates_per_step` times per transition: the algorithm's own update

Targets are worked out by slow copies of the networks that are to reach them: `SlowCopy`.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Generic, Protocol, TypeVar, final

import numpy as np
import torch
from torch import Tensor, nn

from envfleet.train.algorithms.compiled import choose
from envfleet.train.algorithms.demonstrations import load_demonstrations, rollouts_of
from envfleet.train.algorithms.learner import Task, reward_scaling_for, set_learning_rate
from envfleet.train.algorithms.replay import ReplayBuffer, Transitions
from envfleet.train.collecting import Rollout, Rows
from envfleet.train.config import OffPolicyConfig
from envfleet.train.networks.distributions import action_shape
from envfleet.train.networks.modes import TrainingMode
from envfleet.train.networks.networks import Actor, Layout, TwinCritic, observe
from envfleet.train.observations import Array, Observations, flattened, map_leaves, to_tensors

Config = TypeVar("Config", bound=OffPolicyConfig)


@final
class SlowCopy:
    """A copy of a network that follows it slowly; what the network has seen, it counts as seen at once.

    Args:
        network: what is followed.
    """

    def __init__(self, network: nn.Module) -> None:
        self._followed = network
        self.network = copy.deepcopy(network).requires_grad_(False)
        # Listed once: walking through modules every update would show.
        self._weights: list[Tensor] = list(network.parameters())
        self._own_weights: list[Tensor] = list(self.network.parameters())

    def approach(self, share: float) -> None:
        """Go a share of the way to the network."""
        torch._foreach_lerp_(self._own_weights, self._weights, share)

    def copy_statistics(self) -> None:
        """Take over what it normalises observations by."""
        for ours, theirs in zip(self.network.buffers(), self._followed.buffers(), strict=True):
            ours.copy_(theirs)


class CompiledUpdates(Protocol):
    """An algorithm's updates in compiled code."""

    @property
    def kernels(self) -> str:
        """The instruction set that is used."""
        ...

    def outputs(self, observations: Array) -> Tensor:
        """What the actor says of observations."""
        ...

    def updates(self, batches: Transitions, count: int, reward_scale: float) -> Tensor:
        """Several updates, each with its share of the transitions; the metrics added up."""
        ...


class OffPolicyLearner(ABC, Generic[Config]):
    """A `Learner` that keeps every transition, and learns from batches drawn from all of them.

    A subclass makes its other networks in `__init__` and hands them to `assemble`; it says how it explores, `act`, and
    what an update is, `update`, with the names of the metrics that gives: `metrics`.

    Args:
        config: of the algorithm.
        task: what is to be learnt.
        priority_exponent: how much its last error makes a transition likelier to be drawn; 0 draws all alike.

    Attributes:
        replay: the transitions.
        collected: how many were collected in this run.
    """

    rollout_steps = 1
    off_policy = True
    metrics: ClassVar[tuple[str, ...]]
    """What `update` returns, by name."""

    def __init__(self, config: Config, task: Task, priority_exponent: float = 0.0) -> None:
        if config.learning_starts >= config.total_steps:
            raise ValueError(
                f"Nothing would be learnt: learning_starts={config.learning_starts} leaves nothing of "
                f"total_steps={config.total_steps}; lower the one or raise the other."
            )
        self.config = config
        self.device = task.device
        self._num_envs = task.num_envs
        self._action_shape = action_shape(task.action_space)
        self.action_size = math.prod(self._action_shape)
        self.actor = self.actor_for(config, task)
        self._demonstrations = load_demonstrations(config, task)
        demonstrated = 0 if self._demonstrations is None else self._demonstrations.total_steps
        # A run cannot fill more than its steps.
        capacity = min(config.buffer_size, config.total_steps + task.num_envs + demonstrated)
        self.replay = ReplayBuffer(
            task.observation_space,
            self.action_size,
            task.num_envs,
            capacity,
            config.seed,
            priority_exponent=priority_exponent,
        )
        self._rewards = reward_scaling_for(config, task)
        self.collected = 0
        self._updates_owed = 0.0

    def assemble(
        self,
        networks: Mapping[str, nn.Module],
        copies: Mapping[str, SlowCopy],
        optimizers: Mapping[str, torch.optim.Optimizer],
    ) -> None:
        """Take what is trained, what follows it, and what trains it; all by name.

        An optimiser's learning rate is the setting that `step_size_of` gives for its name.
        """
        self._networks, self._copies = networks, copies
        self.modules: Mapping[str, nn.Module] = {
            **networks,
            **{name: made.network for name, made in copies.items()},
        }
        self.optimizers: Mapping[str, torch.optim.Optimizer] = optimizers
        self.training = {name: TrainingMode(network) for name, network in networks.items()}
        why = choose(self.config, self.why_not_compiled())
        self._compiled: CompiledUpdates | None = None if why is not None else self.make_compiled()
        self.plan = f"torch: {why}" if self._compiled is None else f"compiled code ({self._compiled.kernels})"

    @classmethod
    @abstractmethod
    def actor_for(cls, config: Config, task: Task) -> Actor:
        """The user's policy, or ours as the configuration describes it."""

    @abstractmethod
    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:
        """Actions to explore with, one per row."""

    @abstractmethod
    def update(self, batch: Transitions) -> Tensor:
        """Move the networks once; returns `metrics`, a tensor without gradient."""

    def why_not_compiled(self) -> str | None:
        """Why compiled code cannot compute the updates, as a part of a sentence; None if it can."""
        return "the algorithm is not one of envfleet's"

    def make_compiled(self) -> CompiledUpdates:
        """What computes the updates in compiled code, where `why_not_compiled` says nothing against it."""
        raise NotImplementedError

    def compiled_update(self, batches: Transitions, count: int) -> Tensor:
        """So many updates in compiled code, each with its share of the transitions; the metrics added up."""
        assert self._compiled is not None
        return self._compiled.updates(batches, count, self.reward_factor)

    def step_size_of(self, optimizer: str) -> float:
        """What the learning rate of one of `optimizers` starts at."""
        return float(getattr(self.config, f"{optimizer}_lr"))

    def correction(self, progress: float) -> float:  # noqa: ARG002  here it is the same all along
        """How far a batch makes good for unequal chances of being drawn, from 0 to 1."""
        return 0.0

    @property
    def warming_up(self) -> bool:
        """Whether actions are to be taken at random, because learning has not begun."""
        return self.collected < self.config.learning_starts

    @property
    def reward_factor(self) -> float:
        """What rewards are multiplied by now."""
        return self._rewards.factor

    def outputs(self, observations: Observations) -> Tensor:
        """What the actor says of observations."""
        if self._compiled is not None and isinstance(observations, np.ndarray):
            return self._compiled.outputs(observations)
        outputs: Tensor = self.actor(to_tensors(observations, self.device))
        return outputs

    def as_actions(self, actions: Tensor) -> Array:
        """Actions [n, components] as environments take them, [n, ...]."""
        array: Array = actions.reshape(-1, *self._action_shape).cpu().numpy()
        return array

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Remember the rollout, then take the gradient steps it is due; metrics are NaN where there were none."""
        config = self.config
        if self._demonstrations is not None and not self.collected:
            for demonstrated in rollouts_of(self._demonstrations, self._num_envs):
                self._remember(demonstrated)
        self._remember(rollout)
        self.collected += rollout.transitions
        if self.warming_up:
            return dict.fromkeys(self.metrics, math.nan)
        for name, optimizer in self.optimizers.items():
            set_learning_rate(optimizer, self.step_size_of(name) * (1 - progress if config.anneal else 1.0))
        self._updates_owed += rollout.transitions * config.updates_per_step
        updates = int(self._updates_owed)
        self._updates_owed -= updates
        sums = self._updates(updates, progress)
        # Without updates that is 0 / 0, which is what it should say: not a number.
        return dict(zip(self.metrics, (sums / updates).tolist(), strict=True))

    def has_learned(self, steps: int) -> bool:
        """From `learning_starts` on, and once a whole update is due."""
        return (steps - self.config.learning_starts) * self.config.updates_per_step >= 1

    def extra_tensors(self) -> dict[str, Tensor]:
        """The replay buffer, the statistics of rewards if they are normalised, and how far the run has come."""
        return {
            **self._rewards.tensors(),
            **{f"replay.{name}": tensor for name, tensor in self.replay.tensors().items()},
            "collected": torch.tensor(self.collected),
            "updates_owed": torch.tensor(self._updates_owed, dtype=torch.float64),
        }

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `extra_tensors` gave."""
        ours = {name.removeprefix("replay."): tensor for name, tensor in tensors.items() if name.startswith("replay.")}
        self.replay.load_tensors(ours)
        self._rewards.load_tensors(tensors)
        self.collected = int(tensors["collected"])
        self._updates_owed = float(tensors["updates_owed"])

    def _updates(self, count: int, progress: float) -> Tensor:
        """So many updates; the metrics added up."""
        config = self.config
        draw = partial(
            self.replay.sample,
            device=self.device,
            steps=config.return_steps if progress < config.multi_step_share else 1,
            gamma=config.gamma,
            correction=self.correction(progress),
        )
        sums = torch.zeros(len(self.metrics), device=self.device)
        if self._compiled is not None and count:
            # Drawn at once they are the same as drawn one batch after another, unless learning changes the chances.
            at_once = 1 if self.replay.has_priorities else count
            for _ in range(count // at_once):
                sums += self.compiled_update(draw(at_once * config.batch_size), at_once)
            return sums
        for _ in range(count):
            sums += self.update(draw(config.batch_size))
        return sums

    def _remember(self, rollout: Rollout) -> None:
        self.replay.add(rollout)
        self._rewards.count(rollout)
        rows = np.flatnonzero(rollout.valid)
        observations = to_tensors(map_leaves(lambda leaf: leaf[rows], flattened(rollout.observations)), self.device)
        for network in self._networks.values():
            observe(network, observations)
        for following in self._copies.values():
            following.copy_statistics()


def make_twin_critic(task: Task, layout: Layout) -> nn.Module:
    """The user's pair of critics of observations and actions, or ours."""
    if task.networks:
        return task.networks.required_critic().to(task.device).eval()
    size = math.prod(action_shape(task.action_space))
    return TwinCritic(task.observation_space, size, layout).to(task.device).eval()


def check_pair(values: Tensor, rows: int, algorithm: str) -> None:
    """Refuse what is not two estimates for each row."""
    if values.shape != (rows, 2):
        raise ValueError(f"{algorithm}'s critic must give [batch, 2], two estimates per row, got {list(values.shape)}.")
