"""TD3's updates in compiled code: the same mathematics as in td3.py, on torch's own tensors; see compiled.py."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from envfleet import _learner
from envfleet.train.algorithms.compiled import adam_settings, addresses_of, check, two_threads
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.config import TD3Config
from envfleet.train.networks.compiled import (
    activation_of,
    body_of,
    compiled_perceptron,
    numbers_for,
    parameters_of,
    statistics_of,
    trainable,
    why_no_updates,
    with_state,
)
from envfleet.train.networks.exploring import NoisyTanh
from envfleet.train.networks.networks import Actor, TwinCritic
from envfleet.train.observations import Array


@final
class CompiledTD3:
    """Updates of the networks of a TD3, and its actor's outputs.

    Args:
        config: of the algorithm.
        modules: its networks by name, as `TD3.modules`; see `why_not`.
        optimizers: theirs, as `TD3.optimizers`.
        kernels: one of `_learner.kernel_names()`; None takes the best this processor has.
    """

    def __init__(
        self,
        config: TD3Config,
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
        self._update: _learner.TwinDelayed

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledTD3:
        """The same for the copies of the networks and optimisers."""
        modules, optimizers = copy.deepcopy(self._modules, memo), copy.deepcopy(self._optimizers, memo)
        return CompiledTD3(self.config, modules, optimizers, self._kernels)

    @staticmethod
    def why_not(actor: Actor, critic: nn.Module) -> str | None:
        """Why compiled code cannot train these networks, as a part of a sentence; None if it can."""
        return why_no_updates(actor, NoisyTanh, critic)

    @property
    def kernels(self) -> str:
        """The instruction set that is used."""
        return self._actor.kernels

    def outputs(self, observations: Array) -> Tensor:
        """What the actor says of observations, float32[batch, outputs]."""
        return torch.from_numpy(self._actor.forward(numbers_for(self._encoder, observations)))

    def updates(self, batches: Transitions, count: int, reward_scale: float, done: int = 0) -> Tensor:
        """Several updates, each with its share of the transitions, in one call; the metrics added up.

        Noise is drawn as `td3.TD3` draws it, update by update.

        Args:
            batches: transitions of all updates.
            count: how many updates.
            reward_scale: what rewards are multiplied by.
            done: how many updates there were before: every `policy_delay`th moves the actor.
        """
        config = self.config
        noise = torch.empty(count, len(batches.rewards) // count, self._actor.outputs)
        for draw in noise:
            draw.normal_()
        noise.mul_(config.target_noise).clamp_(-config.target_noise_clip, config.target_noise_clip)
        assert isinstance(batches.observations, Tensor)
        assert isinstance(batches.next_observations, Tensor)
        settings = {name: adam_settings(optimizer) for name, optimizer in self._optimizers.items()}
        not_finite, sums = self._bound().update(
            numbers_for(self._encoder, batches.observations.numpy()),
            batches.actions.numpy(),
            batches.rewards.numpy(),
            numbers_for(self._encoder, batches.next_observations.numpy()),
            batches.discounts.numpy(),
            batches.terminated.numpy(),
            noise.numpy(),
            actor=(*settings["actor"], config.max_grad_norm),
            critic=(*settings["critic"], config.max_grad_norm),
            tau=config.tau,
            reward_scale=reward_scale,
            done=done,
            delay=config.policy_delay,
            two_threads=two_threads(),
        )
        check(not_finite)
        # As in torch: divided by the number of all updates, it is the mean of those of the actor.
        return torch.tensor([config.policy_delay * sums[0], *sums[1:]])

    def _bound(self) -> _learner.TwinDelayed:
        """On the tensors as they are: loading a checkpoint gives the optimisers others."""
        modules = [*self._modules.values()]
        if addresses_of(modules, self._optimizers.values()) != self._bound_to:
            critic, target = self._modules["critic"], self._modules["target_critic"]
            assert isinstance(critic, TwinCritic)
            assert isinstance(target, TwinCritic)
            following = body_of(self._modules["target_actor"])
            self._update = _learner.TwinDelayed(
                trainable(body_of(self._modules["actor"]), [], self._optimizers["actor"], self._kernels),
                [with_state(each, self._optimizers["critic"]) for each in critic.layers.parameters()],
                [each.detach() for each in parameters_of(following)],
                [each.detach() for each in target.layers.parameters()],
                activation_of(critic.layers),
                statistics_of(following.encoder),
                statistics_of(critic.encoder),
                statistics_of(target.encoder),
            )
            self._bound_to = addresses_of(modules, self._optimizers.values())
        return self._update
