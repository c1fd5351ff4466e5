"""SAC's updates in compiled code: the same mathematics as in sac.py, on torch's own tensors; see compiled.py."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from envfleet import _learner
from envfleet.train.algorithms.compiled import adam_settings, check, two_threads
from envfleet.train.algorithms.compiled_off_policy import CompiledOffPolicy
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.config import SACConfig
from envfleet.train.networks.compiled import body_of, statistics_of, trainable, why_no_updates, with_state
from envfleet.train.networks.distributions import SquashedNormal
from envfleet.train.networks.networks import Actor


@final
class CompiledSAC(CompiledOffPolicy[SACConfig, _learner.SoftActorCritic]):
    """What `SAC.update` does.

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
        super().__init__(config, modules, optimizers, kernels)
        self._target_entropy = target_entropy
        self._components = self._actor.outputs // 2

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledSAC:
        """The same for the copies of the networks and optimisers."""
        modules, optimizers = copy.deepcopy(self._modules, memo), copy.deepcopy(self._optimizers, memo)
        return CompiledSAC(self.config, modules, optimizers, self._target_entropy, self._kernels)

    @staticmethod
    def why_not(actor: Actor, critic: nn.Module) -> str | None:
        """Why compiled code cannot train these networks, as a part of a sentence; None if it can."""
        return why_no_updates(actor, SquashedNormal, critic)

    def updates(self, batches: Transitions, count: int, reward_scale: float) -> Tensor:
        """Several updates, each with its share of the transitions, in one call; the metrics added up.

        Noise is drawn as `sac.SAC` draws it: for the target's actions, then for the actor's, update by update.
        """
        size = len(batches.rewards) // count
        noise = torch.empty(count, 2, size, self._components)
        for draw in noise.flatten(0, 1):
            draw.normal_()
        not_finite, sums = self._bound().update(
            **self._arrays(batches),
            actions=batches.actions.numpy(),
            noise=noise.numpy(),
            actor=self._step_settings("actor"),
            critic=self._step_settings("critic"),
            temperature=(*adam_settings(self._optimizers["temperature"]), 0.0),
            tau=self.config.tau,
            target_entropy=self._target_entropy,
            reward_scale=reward_scale,
            two_threads=two_threads(),
        )
        check(not_finite)
        return torch.tensor(sums)

    def _bind(self) -> _learner.SoftActorCritic:
        learning, following, activation = self._critics()
        (log_temperature,) = self._modules["temperature"].parameters()
        return _learner.SoftActorCritic(
            trainable(body_of(self._modules["actor"]), [], self._optimizers["actor"], self._kernels),
            learning,
            following,
            activation,
            statistics_of(self._pair("critic").encoder),
            statistics_of(self._pair("target_critic").encoder),
            with_state(log_temperature, self._optimizers["temperature"]),
        )
