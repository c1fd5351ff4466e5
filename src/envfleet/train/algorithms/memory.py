"""Algorithms for policies that remember: rollouts keep their axis of time, and the state is carried along it.

rollout ──▶ states and values along it, from the state it began with ──▶ advantages and returns (GAE)
──▶ sequences [steps, num_envs, ...] ──▶ the algorithm's own update
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic

import torch
from torch import Tensor, nn

from envfleet.train.algorithms.learner import (
    Config,
    Task,
    advantages_and_returns,
    float_tensor,
    head_for,
    make_optimizer,
    reward_scaling_for,
    set_learning_rate,
)
from envfleet.train.algorithms.returns import explained_variance
from envfleet.train.collecting import BoolArray, FloatArray, Rollout, Rows
from envfleet.train.networks.memory import GRUMemory, MemoryActor
from envfleet.train.networks.modes import TrainingMode
from envfleet.train.networks.networks import Critic, observe
from envfleet.train.observations import Array, Observations, Tensors, flattened, map_leaves, to_tensors


@dataclass(frozen=True, eq=False)
class Sequences:
    """A rollout with its axis of time, as tensors on the device.

    Attributes:
        observations: [steps, n, ...].
        actions: [steps, n, ...].
        advantages: float32[steps, n].
        returns: what the critic is to predict, float32[steps, n].
        values: what it predicted before, float32[steps, n].
        resets: where an observation is the first of an episode, bool[steps, n].
        valid: rows that are transitions, bool[steps, n]; all others must enter no loss.
        start: the states before the first step, float32[n, state_size].
        explained_variance: how well the critic predicted the returns before.
    """

    observations: Tensors
    actions: Tensor
    advantages: Tensor
    returns: Tensor
    values: Tensor
    resets: Tensor
    valid: Tensor
    start: Tensor
    explained_variance: float

    def at(self, envs: Tensor) -> Sequences:
        """Only the given environments, int64[m], each with its whole sequence."""
        return Sequences(
            map_leaves(lambda leaf: leaf[:, envs], self.observations),
            self.actions[:, envs],
            self.advantages[:, envs],
            self.returns[:, envs],
            self.values[:, envs],
            self.resets[:, envs],
            self.valid[:, envs],
            self.start[envs],
            self.explained_variance,
        )

    def mean(self, numbers: Tensor) -> Tensor:
        """The mean of numbers [steps, n] over the transitions."""
        return numbers[self.valid].mean()


class MemoryLearner(ABC, Generic[Config]):
    """A `Learner` whose policy remembers, with a critic that sees its state; one optimiser moves both.

    A subclass says what an update is: `update`, and the names of the metrics that gives: `metrics`. The memory is a GRU
    unless `memory_for` gives another. Its state has as many numbers as the last of `hidden_sizes`.
    """

    off_policy = False
    needs_resets = True
    metrics: ClassVar[tuple[str, ...]]
    """What `update` returns, by name."""

    def __init__(self, config: Config, task: Task) -> None:
        self.config = config
        self.device = task.device
        self.rollout_steps = config.rollout_steps
        self.actor = self.actor_for(config, task)
        self.critic = Critic(nn.Linear(self.actor.state_size, 1)).to(task.device).eval()
        networks = nn.ModuleList([self.actor, self.critic])
        self.optimizer = make_optimizer(networks, config.actor_lr, config.adam_beta2)
        self.modules: Mapping[str, nn.Module] = {"actor": self.actor, "critic": self.critic}
        self.optimizers: Mapping[str, torch.optim.Optimizer] = {"networks": self.optimizer}
        self._training_mode = TrainingMode(networks)
        self._rewards = reward_scaling_for(config, task)
        self._states = torch.zeros(task.num_envs, self.actor.state_size, device=task.device)
        self._start = self._states
        """The states that the rollout under way began with."""

    @classmethod
    def memory_for(cls, config: Config, task: Task, size: int) -> nn.Module:
        """From observations and a state [batch, size] to the next state."""
        return GRUMemory(task.observation_space, size, normalize=config.normalize_observations)

    @classmethod
    def actor_for(cls, config: Config, task: Task) -> MemoryActor:
        """The memory, and a layer from its state to the policy."""
        size = config.hidden_sizes[-1]
        actor = MemoryActor(cls.memory_for(config, task, size), head_for(task, size, config.initial_log_std), size)
        return actor.to(task.device).eval()

    @torch.no_grad()
    def act(self, observations: Observations, env_ids: Rows | None = None, resets: BoolArray | None = None) -> Array:
        """Actions drawn from the policy, one per row; `resets` says whose observation is the first of an episode."""
        assert env_ids is None, "all environments act together"
        assert resets is not None, "needs_resets says that they are wanted"
        begins = torch.from_numpy(resets).to(self.device)
        outputs, self._states = self.actor(to_tensors(observations, self.device), self._states, begins)
        actions: Array = self.actor.distribution.sample(outputs).cpu().numpy()
        return actions

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """One update from a rollout, with step size and entropy bonus as they are at this point of the run."""
        config = self.config
        self._rewards.count(rollout)
        start, self._start = self._start, self._states
        if not rollout.transitions:  # all of it was dropped
            return dict.fromkeys((*self.metrics, "learning_rate", "explained_variance"), math.nan)
        remaining = 1 - progress if config.anneal else 1.0
        set_learning_rate(self.optimizer, config.actor_lr * remaining)
        batch = self._sequences(rollout, start)
        with self._training_mode:
            metrics = self.update(batch, config.entropy_coef * remaining)
        seen = map_leaves(lambda leaf: leaf[rollout.valid.ravel()], flattened(rollout.observations))
        observe(self.actor, to_tensors(seen, self.device))
        return {
            **metrics,
            "learning_rate": config.actor_lr * remaining,
            "explained_variance": batch.explained_variance,
        }

    @abstractmethod
    def update(self, batch: Sequences, entropy_coef: float) -> dict[str, float]:
        """Moves actor and critic, which are in training mode, by `gradient_step`; returns `metrics`."""

    def along(self, batch: Sequences) -> tuple[Tensor, Tensor, Tensor]:
        """What actor and critic say of a batch now: log-probabilities, entropies and values, float32[steps, n] each.

        Gradients flow back through time, as far as the batch goes.
        """
        outputs, states = self.actor.along(batch.observations, batch.start, batch.resets)
        shape, rows = batch.advantages.shape, outputs.flatten(0, 1)
        log_prob = self.actor.distribution.log_prob(rows, batch.actions.flatten(0, 1))
        entropy = self.actor.distribution.entropy(rows)
        return log_prob.view(shape), entropy.view(shape), self.critic(states.flatten(0, 1)).view(shape)

    def has_learned(self, steps: int) -> bool:
        """Every rollout is learnt from."""
        return steps > 0

    def extra_tensors(self) -> dict[str, Tensor]:
        """The states, and the statistics of rewards. A subclass with tensors of its own adds them to these."""
        return {**self._rewards.tensors(), "states": self._states}

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `extra_tensors` gave."""
        self._rewards.load_tensors(tensors)
        if tensors["states"].shape != self._states.shape:
            raise ValueError(f"The states must be {list(self._states.shape)}, got {list(tensors['states'].shape)}.")
        self._states = self._start = tensors["states"].to(self.device)

    def _sequences(self, rollout: Rollout, start: Tensor) -> Sequences:
        config, device = self.config, self.device
        assert rollout.resets is not None, "needs_resets says that they are wanted"
        resets = torch.from_numpy(rollout.resets).to(device)
        observations = to_tensors(rollout.observations, device)
        values, next_values = self._values_along(rollout, observations, start, resets)
        scale, gamma, lam = self._rewards.factor, config.gamma, config.gae_lambda
        advantages, returns = advantages_and_returns(rollout, values, next_values, scale, gamma, lam)
        return Sequences(
            observations,
            torch.from_numpy(rollout.actions).to(device),
            float_tensor(advantages, device),
            float_tensor(returns, device),
            float_tensor(values, device),
            resets,
            torch.from_numpy(rollout.valid).to(device),
            start,
            explained_variance(values[rollout.valid], returns[rollout.valid]),
        )

    @torch.no_grad()
    def _values_along(
        self, rollout: Rollout, observations: Tensors, start: Tensor, resets: Tensor
    ) -> tuple[FloatArray, FloatArray]:
        """V(state) and V(next state) of every transition, float64[steps, num_envs] each, as `values_along` gives."""
        _, states = self.actor.along(observations, start, resets)
        done = torch.from_numpy(rollout.done).to(self.device)
        # What comes after the rollout, and after the last step of an episode, is seen with the state there is by then.
        goes_on = torch.zeros_like(resets[0])
        _, after = self.actor(to_tensors(rollout.end.observations, self.device), states[-1], goes_on)
        along = self._values(torch.cat([states, after.unsqueeze(0)]))
        next_values = along[1:].copy()
        if rollout.done.any():
            ended = states[done]
            finals = to_tensors(rollout.final_observations, self.device)
            _, after = self.actor(finals, ended, torch.zeros(len(ended), dtype=torch.bool, device=self.device))
            next_values[rollout.done] = self._values(after)
        return along[:-1], next_values

    def _values(self, states: Tensor) -> FloatArray:
        values: FloatArray = self.critic(states.flatten(0, -2)).double().cpu().numpy().reshape(states.shape[:-1])
        return values
