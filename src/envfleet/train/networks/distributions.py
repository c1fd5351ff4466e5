"""Policies as distributions: from a network's outputs to actions, their log-probabilities and their entropy.

| action space   | distribution      | network outputs for a batch of B   | actions             |
|----------------|-------------------|------------------------------------|---------------------|
| Discrete(n)    | Categorical       | logits [B, n]                      | int64 [B]           |
| MultiDiscrete  | MultiCategorical  | logits of all parts [B, sum(nvec)] | int64 [B, *shape]   |
| MultiBinary    | Bernoulli         | logits [B, n]                      | int8 [B, *shape]    |
| Box            | DiagonalNormal    | means, log deviations [B, 2n]      | float32 [B, *shape] |
| Box, for SAC   | SquashedNormal    | means, log deviations [B, 2n]      | float32 [B, *shape] |
| Dict, Tuple    | Joint             | those of all parts [B, sum]        | [B, numbers of all] |

Box actions are in units where -1 to 1 spans the space's bounds. DiagonalNormal is unbounded: what lies outside is
clipped when it is handed to the environment (`envfleet.wrappers.BoundedAction`), while its probability is that of the
number before clipping. SquashedNormal passes the number through tanh and so never leaves the bounds.

Actions of Dict and Tuple spaces are one row of numbers here, those of their leaves side by side. Environments get them
nested again (`envfleet.train.actions`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor
from torch.nn import functional

from envfleet.train.observations import Array
from envfleet.wrappers._leaves import named_leaves

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)
_MIN_LOG_STD, _MAX_LOG_STD = -20.0, 2.0


class ActionDistribution(ABC):
    """A family of distributions over a batch of actions; the network's outputs [batch, outputs] pick the members."""

    outputs: int
    """How many numbers describe one action's distribution."""

    learns_std = False
    """Whether the second half of them are parameters of their own instead of outputs of the network."""

    @property
    def network_outputs(self) -> int:
        """How many of them the network gives; the others, the last ones, are parameters of their own."""
        return self.outputs // 2 if self.learns_std else self.outputs

    @abstractmethod
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw one action per row from `generator`, by default torch's global one."""

    @abstractmethod
    def mode(self, outputs: Tensor) -> Tensor:
        """The most likely action of each row."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """The log-probability of each row's action, [batch]."""

    @abstractmethod
    def entropy(self, outputs: Tensor) -> Tensor:
        """The entropy of each row's distribution, [batch]."""


class Categorical(ActionDistribution):
    """One of n actions, the first one being `start`."""

    def __init__(self, n: int, start: int = 0) -> None:
        self.outputs = n
        self.start = start

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Actions int64[batch]."""
        return _gumbel_argmax(outputs, generator) + self.start

    def mode(self, outputs: Tensor) -> Tensor:
        """Actions int64[batch]."""
        return outputs.argmax(-1) + self.start

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probabilities [batch]."""
        return _categorical_log_prob(outputs, actions - self.start)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropies [batch]."""
        return _categorical_entropy(outputs)


class MultiCategorical(ActionDistribution):
    """Several independent choices, each among its own number of actions."""

    def __init__(self, nvec: Array, start: Array) -> None:
        self.outputs = int(nvec.sum())
        self.shape = nvec.shape
        self.sizes: list[int] = nvec.ravel().tolist()
        self.start = torch.from_numpy(start.ravel().astype(np.int64))

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Actions int64[batch, *shape]."""
        return self._assembled([_gumbel_argmax(logits, generator) for logits in self._parts(outputs)])

    def mode(self, outputs: Tensor) -> Tensor:
        """Actions int64[batch, *shape]."""
        return self._assembled([logits.argmax(-1) for logits in self._parts(outputs)])

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probabilities of all choices together, [batch]."""
        choices = actions.reshape(-1, len(self.sizes)) - self.start.to(actions.device)
        parts = zip(self._parts(outputs), choices.unbind(-1), strict=True)
        return torch.stack([_categorical_log_prob(logits, choice) for logits, choice in parts]).sum(0)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropies of all choices together, [batch]."""
        return torch.stack([_categorical_entropy(logits) for logits in self._parts(outputs)]).sum(0)

    def _parts(self, outputs: Tensor) -> tuple[Tensor, ...]:
        return torch.split(outputs, self.sizes, dim=-1)

    def _assembled(self, choices: list[Tensor]) -> Tensor:
        actions = torch.stack(choices, dim=-1) + self.start.to(choices[0].device)
        return actions.reshape(-1, *self.shape)


class Bernoulli(ActionDistribution):
    """Independent switches, each 0 or 1."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.outputs = math.prod(shape)
        self.shape = shape

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Actions int8[batch, *shape]."""
        return self._shaped(torch.empty_like(outputs).uniform_(generator=generator) < torch.sigmoid(outputs))

    def mode(self, outputs: Tensor) -> Tensor:
        """Actions int8[batch, *shape]."""
        return self._shaped(outputs > 0)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probabilities of all switches together, [batch]."""
        switches = actions.reshape(outputs.shape).to(outputs)
        losses = functional.binary_cross_entropy_with_logits(outputs, switches, reduction="none")
        return -losses.sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropies of all switches together, [batch]."""
        losses = functional.binary_cross_entropy_with_logits(outputs, torch.sigmoid(outputs), reduction="none")
        return losses.sum(-1)

    def _shaped(self, switches: Tensor) -> Tensor:
        return switches.to(torch.int8).reshape(-1, *self.shape)


class DiagonalNormal(ActionDistribution):
    """Independent Gaussians, one a component; unbounded."""

    learns_std = True

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.outputs = 2 * math.prod(shape)
        self.shape = shape

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Actions float32[batch, *shape]."""
        mean, log_std = outputs.chunk(2, -1)
        return (mean + log_std.exp() * _standard_normal(mean, generator)).reshape(-1, *self.shape)

    def mode(self, outputs: Tensor) -> Tensor:
        """Actions float32[batch, *shape]."""
        return outputs.chunk(2, -1)[0].reshape(-1, *self.shape)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-densities [batch]."""
        mean, log_std = outputs.chunk(2, -1)
        return _normal_log_prob(actions.reshape(mean.shape), mean, log_std)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Differential entropies [batch]."""
        log_std = outputs.chunk(2, -1)[1]
        return (log_std + 0.5 + _LOG_SQRT_2_PI).sum(-1)


class SquashedNormal(ActionDistribution):
    """Independent Gaussians passed through tanh: actions between -1 and 1, differentiable in the outputs."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.outputs = 2 * math.prod(shape)
        self.shape = shape
        self._constant = math.prod(shape) * (_LOG_SQRT_2_PI + 2 * math.log(2))

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Actions float32[batch, *shape]."""
        return self.sample_with_noise(outputs, _standard_normal(outputs.chunk(2, -1)[0], generator))

    def sample_with_log_prob(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [batch, *shape] and their log-densities [batch], both differentiable."""
        mean, log_std = self._parameters(outputs)
        noise = torch.randn_like(mean)
        raw = torch.addcmul(mean, log_std.exp(), noise)
        # log N(raw) in terms of the noise, less log(1 - tanh(raw)^2) = 2 log 2 - 2 log(exp(raw) + exp(-raw)): the same
        # density as `log_prob`, in fewer operations, for SAC spends much of its time here.
        log_prob = (2 * torch.logaddexp(raw, -raw) - log_std).sum(-1) - 0.5 * noise.square().sum(-1) - self._constant
        return torch.tanh(raw).reshape(-1, *self.shape), log_prob

    def sample_with_noise(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The actions [batch, *shape] that standard normal noise [batch, components] leads to."""
        mean, log_std = self._parameters(outputs)
        return torch.tanh(torch.addcmul(mean, log_std.exp(), noise)).reshape(-1, *self.shape)

    def mode(self, outputs: Tensor) -> Tensor:
        """The squashed mean, float32[batch, *shape]: what the policy does without noise."""
        return torch.tanh(outputs.chunk(2, -1)[0]).reshape(-1, *self.shape)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-densities [batch]."""
        mean, log_std = self._parameters(outputs)
        raw = torch.atanh(actions.reshape(mean.shape).clamp(-1 + 1e-6, 1 - 1e-6))
        return _normal_log_prob(raw, mean, log_std) - _log_tanh_slope(raw).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """An estimate from one sample per row, [batch]: there is no closed form."""
        return -self.sample_with_log_prob(outputs)[1]

    def _parameters(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = outputs.chunk(2, -1)
        return mean, log_std.clamp(_MIN_LOG_STD, _MAX_LOG_STD)


class Joint(ActionDistribution):
    """Independent distributions for the leaves of a nested space; an action is a row of all their numbers.

    Rows are int64 if all leaves are discrete and float32 if all are continuous. Otherwise they are float64, which holds
    both exactly.

    Args:
        leaves: the leaves of the space, in its order.
    """

    def __init__(self, leaves: Sequence[Space[Any]]) -> None:
        self._parts = [distribution_for(leaf) for leaf in leaves]
        self._dtypes = [torch.float32 if is_continuous(leaf) else torch.int64 for leaf in leaves]
        self._row_dtype = self._dtypes[0] if len({*self._dtypes}) == 1 else torch.float64
        self._shapes = [tuple(leaf.shape or ()) for leaf in leaves]
        self._widths = [math.prod(shape) for shape in self._shapes]
        self._given = [part.network_outputs for part in self._parts]
        self._learned = [part.outputs - part.network_outputs for part in self._parts]
        self.outputs = sum(self._given) + sum(self._learned)

    @property
    def network_outputs(self) -> int:
        """Those of all parts; the deviations of all parts come after them."""
        return sum(self._given)

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Actions [batch, numbers of all leaves]."""
        return self._row([part.sample(own, generator) for part, own in self._outputs_by_part(outputs)])

    def mode(self, outputs: Tensor) -> Tensor:
        """Actions [batch, numbers of all leaves]."""
        return self._row([part.mode(own) for part, own in self._outputs_by_part(outputs)])

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probabilities, or densities, of all parts together, [batch]."""
        columns = torch.split(actions, self._widths, dim=-1)
        taken = [
            column.to(dtype).reshape(-1, *shape)
            for column, dtype, shape in zip(columns, self._dtypes, self._shapes, strict=True)
        ]
        pairs = zip(self._outputs_by_part(outputs), taken, strict=True)
        return torch.stack([part.log_prob(own, action) for (part, own), action in pairs]).sum(0)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropies of all parts together, [batch]."""
        return torch.stack([part.entropy(own) for part, own in self._outputs_by_part(outputs)]).sum(0)

    def _outputs_by_part(self, outputs: Tensor) -> list[tuple[ActionDistribution, Tensor]]:
        given = torch.split(outputs, [*self._given, sum(self._learned)], dim=-1)
        learned = torch.split(given[-1], self._learned, dim=-1)
        pairs = zip(self._parts, given[:-1], learned, strict=True)
        return [(part, torch.cat([own, stds], -1) if stds.shape[-1] else own) for part, own, stds in pairs]

    def _row(self, actions: list[Tensor]) -> Tensor:
        columns = zip(actions, self._widths, strict=True)
        return torch.cat([action.reshape(-1, width).to(self._row_dtype) for action, width in columns], -1)


def distribution_for(space: Space[Any], *, squashed: bool = False) -> ActionDistribution:
    """The distribution for actions of `space`; `squashed` picks SquashedNormal, which takes continuous actions only."""
    if squashed:
        check_continuous(space, "SAC")
        return SquashedNormal(action_shape(space))
    if is_nested(space):
        return Joint([leaf for _, leaf in named_leaves(space)])
    if isinstance(space, spaces.Box) and is_continuous(space):
        return DiagonalNormal(space.shape)
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(np.asarray(space.nvec), np.asarray(space.start))
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space.shape)
    raise TypeError(
        f"Actions must be Discrete, MultiDiscrete, MultiBinary or a Box of floats, alone or nested in Dict and Tuple, "
        f"got {space}; wrap the environment so that its actions are one of these."
    )


def check_continuous(space: Space[Any], algorithm: str) -> None:
    """Refuse actions that an algorithm for continuous ones cannot take."""
    leaves = [leaf for _, leaf in named_leaves(space)]
    if not leaves or not all(map(is_continuous, leaves)):
        kinds = "a Box of floats, or Dict and Tuple of such"
        others = "DQN, A2C or PPO" if isinstance(space, spaces.Discrete) else "A2C or PPO"
        raise TypeError(f"{algorithm} needs continuous actions ({kinds}), got {space}; use {others}.")


def is_continuous(space: Space[Any]) -> bool:
    """Whether actions of `space` are a Box of floats."""
    return isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)


def is_nested(space: Space[Any]) -> bool:
    """Whether actions of `space` are dicts or tuples."""
    return isinstance(space, (spaces.Dict, spaces.Tuple))


def action_shape(space: Space[Any]) -> tuple[int, ...]:
    """The shape of one action as a distribution gives it: of nested spaces, a row of all numbers."""
    if not is_nested(space):
        return tuple(space.shape or ())
    return (sum(math.prod(leaf.shape or ()) for _, leaf in named_leaves(space)),)


def _standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.empty_like(like).normal_(generator=generator)


def _gumbel_argmax(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    # argmax(logits + Gumbel noise) is a sample of softmax(logits), at half the price of torch.multinomial.
    return (logits - torch.empty_like(logits).exponential_(generator=generator).log_()).argmax(-1)


def _categorical_log_prob(logits: Tensor, choice: Tensor) -> Tensor:
    return torch.log_softmax(logits, -1).gather(-1, choice.unsqueeze(-1)).squeeze(-1)


def _categorical_entropy(logits: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, -1)
    return -(log_probs.exp() * log_probs).sum(-1)


def _normal_log_prob(values: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    return (-0.5 * ((values - mean) * torch.exp(-log_std)).square() - log_std - _LOG_SQRT_2_PI).sum(-1)


def _log_tanh_slope(raw: Tensor) -> Tensor:
    # log(1 - tanh(raw)^2), written so that it neither overflows nor cancels for large raw.
    return 2 * (math.log(2) - raw - functional.softplus(-2 * raw))
