"""SAC's updates in compiled code: the same mathematics as in sac.py, on torch's own tensors; see compiled.py."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from envfleet import _learner
from envfleet.train.algorithms.compiled import adam_settings, addresses_of, check, two_threads
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.config import SACConfig
from envfleet.train.networks.compiled import (
    activation_of,
    body_of,
    compiled_perceptron,
    numbers_for,
    statistics_of,
    trainable,
    why_no_updates,
    with_state,
)
from envfleet.train.networks.distributions import SquashedNormal
from envfleet.train.networks.networks import Actor, TwinCritic
from envfleet.train.observations import Array


@final
class CompiledSAC:
    """Updates of the networks of a SAC, and its actor's outputs.

    Args:
        config: of the algorithm.
        modules: its networks by name, as `SAC.modules`; see `why_not`.
        optimizers: theirs, as `SAC.optimizers`.
        target_entropy: what the temperature steers to.
        kernels: one of `_learner.kernel_names()`; None takes the best this processor has.
    """

    def __init__(
        self,
        config: SACConfig,
        modules: Mapping[str, nn.Module],
        optimizers: Mapping[str, torch.optim.Optimizer],
        target_entropy: float,
        kernels: str | None = None,
    ) -> None:
        self.config = config
        self._modules, self._optimizers = modules, optimizers
        self._target_entropy = target_entropy
        self._kernels = kernels
        body = body_of(modules["actor"])
        self._encoder = body.encoder
        self._actor = compiled_perceptron(body, kernels)
        self._components = self._actor.outputs // 2
        self._bound_to: tuple[int, ...] = ()
        self._update: _learner.SoftActorCritic

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledSAC:
        """The same for the copies of the networks and optimisers."""
        modules, optimizers = copy.deepcopy(self._modules, memo), copy.deepcopy(self._optimizers, memo)
        return CompiledSAC(self.config, modules, optimizers, self._target_entropy, self._kernels)

    @staticmethod
    def why_not(actor: Actor, critic: nn.Module) -> str | None:
        """Why compiled code cannot train these networks, as a part of a sentence; None if it can."""
        return why_no_updates(actor, SquashedNormal, critic)

    @property
    def kernels(self) -> str:
        """The instruction set that is used."""
        return self._actor.kernels

    def outputs(self, observations: Array) -> Tensor:
        """What the actor says of observations, float32[batch, outputs]."""
        return torch.from_numpy(self._actor.forward(numbers_for(self._encoder, observations)))

    def updates(self, batches: Transitions, count: int, reward_scale: float) -> Tensor:
        """Several updates, each with its share of the transitions, in one call; the metrics added up.

        Noise is drawn as `sac.SAC` draws it: for the target's actions, then for the actor's, update by update.
        """
        size = len(batches.rewards) // count
        noise = torch.empty(count, 2, size, self._components)
        for draw in noise.flatten(0, 1):
            draw.normal_()
        assert isinstance(batches.observations, Tensor)
        assert isinstance(batches.next_observations, Tensor)
        settings = {name: adam_settings(optimizer) for name, optimizer in self._optimizers.items()}
        longest = self.config.max_grad_norm
        not_finite, sums = self._bound().update(
            numbers_for(self._encoder, batches.observations.numpy()),
            batches.actions.numpy(),
            batches.rewards.numpy(),
            numbers_for(self._encoder, batches.next_observations.numpy()),
            batches.discounts.numpy(),
            batches.terminated.numpy(),
            noise.numpy(),
            actor=(*settings["actor"], longest),
            critic=(*settings["critic"], longest),
            temperature=(*settings["temperature"], 0.0),
            tau=self.config.tau,
            target_entropy=self._target_entropy,
            reward_scale=reward_scale,
            two_threads=two_threads(),
        )
        check(not_finite)
        return torch.tensor(sums)

    def _bound(self) -> _learner.SoftActorCritic:
        """On the tensors as they are: loading a checkpoint gives the optimisers others."""
        modules = [*self._modules.values()]
        if addresses_of(modules, self._optimizers.values()) != self._bound_to:
            actor, critic, target = (self._modules[name] for name in ("actor", "critic", "target_critic"))
            assert isinstance(critic, TwinCritic)
            assert isinstance(target, TwinCritic)
            (log_temperature,) = self._modules["temperature"].parameters()
            self._update = _learner.SoftActorCritic(
                trainable(body_of(actor), [], self._optimizers["actor"], self._kernels),
                [with_state(each, self._optimizers["critic"]) for each in critic.layers.parameters()],
                [each.detach() for each in target.layers.parameters()],
                activation_of(critic.layers),
                statistics_of(critic.encoder),
                statistics_of(target.encoder),
                with_state(log_temperature, self._optimizers["temperature"]),
            )
            self._bound_to = addresses_of(modules, self._optimizers.values())
        return self._update
