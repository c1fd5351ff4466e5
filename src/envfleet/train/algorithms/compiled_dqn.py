"""DQN's updates in compiled code: the same mathematics as in dqn.py, on torch's own tensors; see compiled.py."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from envfleet import _learner
from envfleet.train.algorithms.compiled import adam_settings, addresses_of, check, two_threads
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.config import DQNConfig
from envfleet.train.networks.compiled import (
    body_of,
    compiled_perceptron,
    numbers_for,
    parameters_of,
    statistics_of,
    trainable,
    why_no_updates,
)
from envfleet.train.networks.exploring import EpsilonGreedy
from envfleet.train.networks.networks import Actor, DuelingPerceptron
from envfleet.train.observations import Array


@final
class CompiledDQN:
    """Updates of the network of a DQN, and its outputs.

    Args:
        config: of the algorithm.
        modules: its networks by name, as `DQN.modules`; see `why_not`.
        optimizer: the network's.
        kernels: one of `_learner.kernel_names()`; None takes the best this processor has.

    Attributes:
        errors: by how much each value was above its target in the latest updates, float32[transitions].
    """

    def __init__(
        self,
        config: DQNConfig,
        modules: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        kernels: str | None = None,
    ) -> None:
        self.config = config
        self.errors: npt.NDArray[np.float32] = np.empty(0, np.float32)
        self._modules, self._optimizer = modules, optimizer
        self._kernels = kernels
        actor = modules["actor"]
        assert isinstance(actor, Actor)
        assert isinstance(actor.distribution, EpsilonGreedy)
        self._start = actor.distribution.start
        self._encoder = body_of(actor).encoder
        self._network = compiled_perceptron(body_of(actor), kernels)
        self._bound_to: tuple[int, ...] = ()
        self._update: _learner.QNetwork

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledDQN:
        """The same for the copies of the networks and the optimiser."""
        modules, optimizer = copy.deepcopy(self._modules, memo), copy.deepcopy(self._optimizer, memo)
        return CompiledDQN(self.config, modules, optimizer, self._kernels)

    @staticmethod
    def why_not(actor: Actor) -> str | None:
        """Why compiled code cannot train this network, as a part of a sentence; None if it can."""
        if type(actor.body) is DuelingPerceptron:
            return "it does not take the dueling network"
        return why_no_updates(actor, EpsilonGreedy)

    @property
    def kernels(self) -> str:
        """The instruction set that is used."""
        return self._network.kernels

    def outputs(self, observations: Array) -> Tensor:
        """What the network says of observations, float32[batch, choices]."""
        return torch.from_numpy(self._network.forward(numbers_for(self._encoder, observations)))

    def updates(self, batches: Transitions, count: int, reward_scale: float) -> Tensor:
        """Several updates, each with its share of the transitions, in one call; loss and mean value added up."""
        config = self.config
        assert isinstance(batches.observations, Tensor)
        assert isinstance(batches.next_observations, Tensor)
        self.errors = np.empty(len(batches.rewards), np.float32)
        not_finite, sums = self._bound().update(
            numbers_for(self._encoder, batches.observations.numpy()),
            (batches.actions[:, 0].numpy() - self._start).astype(np.int32),
            batches.rewards.numpy(),
            numbers_for(self._encoder, batches.next_observations.numpy()),
            batches.discounts.numpy(),
            batches.terminated.numpy(),
            None if batches.weights is None else batches.weights.numpy(),
            self.errors,
            updates=count,
            step=(*adam_settings(self._optimizer), config.max_grad_norm),
            tau=config.tau,
            reward_scale=reward_scale,
            is_double=config.double,
            two_threads=two_threads(),
        )
        check(not_finite)
        return torch.tensor(sums)

    def _bound(self) -> _learner.QNetwork:
        """On the tensors as they are: loading a checkpoint gives the optimiser others."""
        modules = [*self._modules.values()]
        if addresses_of(modules, [self._optimizer]) != self._bound_to:
            target = body_of(self._modules["target_actor"])
            self._update = _learner.QNetwork(
                trainable(body_of(self._modules["actor"]), [], self._optimizer, self._kernels),
                [each.detach() for each in parameters_of(target)],
                statistics_of(target.encoder),
            )
            self._bound_to = addresses_of(modules, [self._optimizer])
        return self._update
