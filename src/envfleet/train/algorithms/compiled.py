"""The updates of A2C and PPO in compiled code: the same mathematics as theirs in torch, without its overhead.

Torch owns everything: weights, Adam's state and the statistics are changed where torch keeps them, and what is random
is drawn from torch's generator as torch's own updates draw it. So a run may change from one way to the other at any
update. Results differ in the last digits, as sums are formed in another order.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, final

import numpy as np
import torch
from torch import Tensor, nn

from envfleet import _learner
from envfleet.train.config import A2CConfig, PPOConfig, TrainConfig
from envfleet.train.finite import check_number
from envfleet.train.networks.compiled import (
    compiled_perceptron,
    numbers_for,
    trainable,
    why_not_compiled,
)
from envfleet.train.networks.distributions import (
    ActionDistribution,
    Bernoulli,
    Categorical,
    DiagonalNormal,
    MultiCategorical,
)
from envfleet.train.networks.networks import Actor, Critic, Perceptron
from envfleet.train.observations import Array, Tensors

if TYPE_CHECKING:
    from envfleet.train.algorithms.learner import Batch

Config = TypeVar("Config", bound="A2CConfig | PPOConfig")

_MANY_THREADS, _WIDE = 4, 256
"""From so many threads of torch's and so wide layers on, torch is taken to be faster."""


class CompiledUpdate(ABC, Generic[Config]):
    """One update of an actor and a critic from a batch, and the critic's values.

    Args:
        config: of the algorithm.
        actor: one of ours, see `why_not`.
        critic: likewise.
        actor_optimizer: of the actor's parameters.
        critic_optimizer: of the critic's parameters.
        kernels: one of `_learner.kernel_names()`; None takes the best this processor has.
    """

    def __init__(
        self,
        config: Config,
        actor: Actor,
        critic: Critic,
        actor_optimizer: torch.optim.Optimizer,
        critic_optimizer: torch.optim.Optimizer,
        kernels: str | None = None,
    ) -> None:
        self.config = config
        self._actor, self._critic = actor, critic
        self._actor_optimizer, self._critic_optimizer = actor_optimizer, critic_optimizer
        self._kernels = kernels
        self._head, self._sizes = head_of(actor.distribution)
        self._values = compiled_perceptron(critic.body, kernels)
        self._bound_to: tuple[int, ...] = ()
        self._update: _learner.OnPolicy

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledUpdate[Config]:
        """The same for the copies of the networks and optimisers."""
        actor, critic = copy.deepcopy(self._actor, memo), copy.deepcopy(self._critic, memo)
        actor_optimizer = copy.deepcopy(self._actor_optimizer, memo)
        critic_optimizer = copy.deepcopy(self._critic_optimizer, memo)
        return type(self)(self.config, actor, critic, actor_optimizer, critic_optimizer, self._kernels)

    @staticmethod
    def why_not(config: Config, actor: Actor, critic: Critic) -> str | None:  # noqa: ARG004
        """Why compiled code cannot train these networks, as a part of a sentence; None if it can."""
        reason = why_not_compiled(actor.body) or why_not_compiled(critic.body)
        if reason is None and type(actor.distribution) not in _HEADS:
            reason = f"the distribution is not one of envfleet's ({type(actor.distribution).__name__})"
        return reason

    @property
    def kernels(self) -> str:
        """The instruction set that is used."""
        return self._values.kernels

    def values(self, observations: Tensors) -> Tensor:
        """What the critic says of observations, float32[batch]."""
        assert isinstance(observations, Tensor)
        assert isinstance(self._critic.body, Perceptron)
        return torch.from_numpy(
            self._values.forward(numbers_for(self._critic.body.encoder, observations.numpy()))[:, 0]
        )

    @abstractmethod
    def __call__(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """Move actor and critic; returns the algorithm's metrics."""

    def _loaded(self, batch: Batch) -> _learner.OnPolicy:
        """The compiled update, with the batch to learn from."""
        update = self._bound()
        assert isinstance(batch.observations, Tensor)
        assert isinstance(self._actor.body, Perceptron)
        observations = numbers_for(self._actor.body.encoder, batch.observations.numpy())
        actions = actions_for(self._actor.distribution, batch.actions.numpy())
        choices, numbers = (actions, None) if actions.dtype == np.int32 else (None, actions)
        update.load(observations, choices, numbers, batch.advantages.numpy(), batch.returns.numpy())
        return update

    def _bound(self) -> _learner.OnPolicy:
        """On the tensors as they are: loading a checkpoint gives the optimisers others."""
        modules, optimizers = (self._actor, self._critic), (self._actor_optimizer, self._critic_optimizer)
        if addresses_of(modules, optimizers) != self._bound_to:
            others = [] if self._actor.log_std is None else [self._actor.log_std]
            actor = trainable(self._actor.body, others, self._actor_optimizer, self._kernels)
            critic = trainable(self._critic.body, [], self._critic_optimizer, self._kernels)
            self._update = _learner.OnPolicy(actor, critic, self._head, self._sizes)
            self._bound_to = addresses_of(modules, optimizers)
        return self._update

    def _step_settings(self, optimizer: torch.optim.Optimizer) -> tuple[float, float, float, float, float]:
        return (*adam_settings(optimizer), self.config.max_grad_norm)


@final
class CompiledA2C(CompiledUpdate[A2CConfig]):
    """What `A2C.update` does."""

    def __call__(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """The critic's steps, then the actor's, all from one batch, in one call."""
        config = self.config
        not_finite, metrics = self._loaded(batch).a2c(
            critic_updates=config.critic_updates,
            entropy_coef=entropy_coef,
            normalize_advantages=config.normalize_advantages,
            actor=self._step_settings(self._actor_optimizer),
            critic=self._step_settings(self._critic_optimizer),
            two_threads=two_threads(),
        )
        check(not_finite)
        return dict(zip(("actor_loss", "critic_loss", "entropy"), metrics, strict=False))


@final
class CompiledPPO(CompiledUpdate[PPOConfig]):
    """What `PPO.update` does."""

    names: ClassVar[tuple[str, ...]] = ("actor_loss", "critic_loss", "entropy", "approx_kl", "clip_fraction")

    def __call__(self, batch: Batch, entropy_coef: float) -> dict[str, float]:
        """Passes over one batch in minibatches, one call each."""
        config = self.config
        update = self._loaded(batch)
        update.remember_policy(two_threads())
        epochs: list[list[float]] = []
        for _ in range(config.epochs):
            epochs.append(self.epoch(update, len(batch), entropy_coef))
            if 0 < config.target_kl < epochs[-1][3]:
                break
        means = dict(zip(self.names, np.mean(epochs, axis=0).tolist(), strict=True))
        return {**means, "approx_kl": epochs[-1][3], "epochs": float(len(epochs))}

    def epoch(self, update: _learner.OnPolicy, rows: int, entropy_coef: float) -> list[float]:
        """One pass over the rows that were loaded; returns what `names` says."""
        config = self.config
        not_finite, metrics = update.ppo_epoch(
            torch.randperm(rows).numpy(),
            minibatch=config.minibatch_size,
            entropy_coef=entropy_coef,
            normalize_advantages=config.normalize_advantages,
            clip_range=config.clip_range,
            actor=self._step_settings(self._actor_optimizer),
            critic=self._step_settings(self._critic_optimizer),
            two_threads=two_threads(),
        )
        check(not_finite)
        return metrics


def choose(config: TrainConfig, cannot: str | None) -> str | None:
    """Why torch is to compute the updates; None if compiled code is.

    Args:
        config: says what is wanted.
        cannot: why compiled code cannot, if so.
    """
    if config.learner == "torch":
        return "as told"
    if config.learner == "compiled" and cannot is not None:
        raise ValueError(f"learner='compiled' is not possible: {cannot}; use learner='auto', which takes torch here.")
    if config.learner == "auto" and cannot is None and _torch_is_faster(config):
        return f"its {config.torch_threads} threads share the work of wide layers"
    return cannot


def _torch_is_faster(config: TrainConfig) -> bool:
    """Thread by thread compiled code is faster at every width measured, but it has two of them at most."""
    return config.torch_threads >= _MANY_THREADS and max(config.hidden_sizes, default=0) >= _WIDE


def head_of(distribution: ActionDistribution) -> tuple[str, list[int]]:
    """What compiled code calls a distribution, and the sizes of its choices if it has any."""
    if isinstance(distribution, Categorical):
        return "categorical", [distribution.outputs]
    if isinstance(distribution, MultiCategorical):
        return "categorical", distribution.sizes
    return ("bernoulli" if isinstance(distribution, Bernoulli) else "normal"), []


_HEADS: tuple[type[ActionDistribution], ...] = (Categorical, MultiCategorical, Bernoulli, DiagonalNormal)


def actions_for(distribution: ActionDistribution, actions: Array) -> Array:
    """Actions [n, components]: choices counted from 0 as int32, anything else as float32."""
    rows = actions.reshape(len(actions), -1)
    if isinstance(distribution, (Categorical, MultiCategorical)):
        return np.ascontiguousarray(rows - np.asarray(distribution.start), dtype=np.int32)
    return np.ascontiguousarray(rows, dtype=np.float32)


def adam_settings(optimizer: torch.optim.Optimizer) -> tuple[float, float, float, float]:
    """Step size, both betas and epsilon, as they are now."""
    group: dict[str, Any] = optimizer.param_groups[0]
    return float(group["lr"]), *group["betas"], float(group["eps"])


def two_threads() -> bool:
    """Whether actor and critic may learn side by side; what comes out is the same."""
    return len(os.sched_getaffinity(0)) > 1


def check(not_finite: tuple[str, float] | None) -> None:
    """Raise what torch's updates raise for a loss or a gradient that is not finite."""
    if not_finite is not None:
        quantity, value = not_finite
        check_number(value, quantity)


def addresses_of(modules: Iterable[nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> tuple[int, ...]:
    """Where all lies that compiled code works on: other tensors in their places lie elsewhere."""
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    states = [state for optimizer in optimizers for state in optimizer.state.values()]
    return tuple(tensor.data_ptr() for tensor in (*tensors, *(each for state in states for each in state.values())))
