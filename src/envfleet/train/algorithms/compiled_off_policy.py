"""What the updates of SAC, TD3 and DQN in compiled code share; see compiled.py."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from envfleet import _learner
from envfleet.train.algorithms.compiled import adam_settings, addresses_of
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.config import OffPolicyConfig
from envfleet.train.networks.compiled import activation_of, body_of, compiled_perceptron, numbers_for, with_state
from envfleet.train.networks.networks import TwinCritic
from envfleet.train.observations import Array

Config = TypeVar("Config", bound=OffPolicyConfig)
Bound = TypeVar("Bound", _learner.SoftActorCritic, _learner.TwinDelayed, _learner.QNetwork)
_Parameter = tuple[Tensor, Tensor, Tensor, Tensor]
"""A parameter and what Adam remembers of it."""


class CompiledOffPolicy(ABC, Generic[Config, Bound]):
    """Updates of the networks of an off-policy algorithm, and its actor's outputs.

    Args:
        config: of the algorithm.
        modules: its networks by name, as the algorithm's `modules`; see `why_not`.
        optimizers: theirs, as the algorithm's `optimizers`.
        kernels: one of `_learner.kernel_names()`; None takes the best this processor has.
    """

    def __init__(
        self,
        config: Config,
        modules: Mapping[str, nn.Module],
        optimizers: Mapping[str, torch.optim.Optimizer],
        kernels: str | None = None,
    ) -> None:
        self.config = config
        self._modules, self._optimizers = modules, optimizers
        self._kernels = kernels
        body = body_of(modules["actor"])
        self._encoder = body.encoder
        self._actor = compiled_perceptron(body, kernels)
        self._bound_to: tuple[int, ...] = ()
        self._update: Bound

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledOffPolicy[Config, Bound]:
        """The same for the copies of the networks and optimisers."""
        modules, optimizers = copy.deepcopy(self._modules, memo), copy.deepcopy(self._optimizers, memo)
        return type(self)(self.config, modules, optimizers, self._kernels)

    @property
    def kernels(self) -> str:
        """The instruction set that is used."""
        return self._actor.kernels

    def outputs(self, observations: Array) -> Tensor:
        """What the actor says of observations, float32[batch, outputs]."""
        return torch.from_numpy(self._actor.forward(numbers_for(self._encoder, observations)))

    def _arrays(self, batches: Transitions) -> dict[str, Array]:
        """All of the transitions but their actions, as compiled code takes them."""
        assert isinstance(batches.observations, Tensor)
        assert isinstance(batches.next_observations, Tensor)
        return {
            "observations": numbers_for(self._encoder, batches.observations.numpy()),
            "rewards": batches.rewards.numpy(),
            "next_observations": numbers_for(self._encoder, batches.next_observations.numpy()),
            "discounts": batches.discounts.numpy(),
            "terminated": batches.terminated.numpy(),
        }

    def _step_settings(self, name: str) -> tuple[float, float, float, float, float]:
        """Adam's settings and the longest gradient of a network."""
        return (*adam_settings(self._optimizers[name]), self.config.max_grad_norm)

    def _bound(self) -> Bound:
        """On the tensors as they are: loading a checkpoint gives the optimisers others."""
        modules, optimizers = [*self._modules.values()], [*self._optimizers.values()]
        if addresses_of(modules, optimizers) != self._bound_to:
            self._update = self._bind()
            self._bound_to = addresses_of(modules, optimizers)
        return self._update

    @abstractmethod
    def _bind(self) -> Bound:
        """Compiled code on the tensors of the networks and optimisers."""

    def _pair(self, name: str) -> TwinCritic:
        """A pair of critics."""
        pair = self._modules[name]
        assert isinstance(pair, TwinCritic)
        return pair

    def _critics(self) -> tuple[list[_Parameter], list[Tensor], str]:
        """The critics' parameters with Adam's state, the target critics' parameters, and the critics' activation."""
        layers, following = self._pair("critic").layers, self._pair("target_critic").layers
        learning = [with_state(each, self._optimizers["critic"]) for each in layers.parameters()]
        return learning, [each.detach() for each in following.parameters()], activation_of(layers)
