"""DQN's updates in compiled code: the same mathematics as in dqn.py, on torch's own tensors; see compiled.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from envfleet import _learner
from envfleet.train.algorithms.compiled import check, two_threads
from envfleet.train.algorithms.compiled_off_policy import CompiledOffPolicy
from envfleet.train.algorithms.replay import Transitions
from envfleet.train.config import DQNConfig
from envfleet.train.networks.compiled import body_of, parameters_of, statistics_of, trainable, why_no_updates
from envfleet.train.networks.exploring import EpsilonGreedy
from envfleet.train.networks.networks import Actor, DuelingPerceptron


@final
class CompiledDQN(CompiledOffPolicy[DQNConfig, _learner.QNetwork]):
    """What `DQN.update` does.

    Args:
        config: of the algorithm.
        modules: its networks by name, as `DQN.modules`; see `why_not`.
        optimizers: theirs, as `DQN.optimizers`.
        kernels: one of `_learner.kernel_names()`; None takes the best this processor has.

    Attributes:
        errors: by how much each value was above its target in the latest updates, float32[transitions].
    """

    def __init__(
        self,
        config: DQNConfig,
        modules: Mapping[str, nn.Module],
        optimizers: Mapping[str, torch.optim.Optimizer],
        kernels: str | None = None,
    ) -> None:
        super().__init__(config, modules, optimizers, kernels)
        self.errors: npt.NDArray[np.float32] = np.empty(0, np.float32)
        actor = modules["actor"]
        assert isinstance(actor, Actor)
        assert isinstance(actor.distribution, EpsilonGreedy)
        self._start = actor.distribution.start

    @staticmethod
    def why_not(actor: Actor) -> str | None:
        """Why compiled code cannot train this network, as a part of a sentence; None if it can."""
        if type(actor.body) is DuelingPerceptron:
            return "it does not take the dueling network"
        return why_no_updates(actor, EpsilonGreedy)

    def updates(self, batches: Transitions, count: int, reward_scale: float) -> Tensor:
        """Several updates, each with its share of the transitions, in one call; loss and mean value added up."""
        self.errors = np.empty(len(batches.rewards), np.float32)
        not_finite, sums = self._bound().update(
            **self._arrays(batches),
            choices=(batches.actions[:, 0].numpy() - self._start).astype(np.int32),
            weights=None if batches.weights is None else batches.weights.numpy(),
            errors=self.errors,
            updates=count,
            step=self._step_settings("actor"),
            tau=self.config.tau,
            reward_scale=reward_scale,
            is_double=self.config.double,
            two_threads=two_threads(),
        )
        check(not_finite)
        return torch.tensor(sums)

    def _bind(self) -> _learner.QNetwork:
        target = body_of(self._modules["target_actor"])
        return _learner.QNetwork(
            trainable(body_of(self._modules["actor"]), [], self._optimizers["actor"], self._kernels),
            [each.detach() for each in parameters_of(target)],
            statistics_of(target.encoder),
        )
