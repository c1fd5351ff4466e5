"""Actors and critics: an encoder for the observation space, then a small multilayer perceptron."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from gymnasium import Space
from torch import Tensor, nn

from envfleet.train.networks.distributions import ActionDistribution
from envfleet.train.networks.encoders import Encoder, encoder, orthogonal
from envfleet.train.observations import Tensors

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


@dataclass(frozen=True)
class Layout:
    """What a network of ours looks like between its encoder and its outputs.

    Attributes:
        hidden: the width of each hidden layer.
        activation: a key of `ACTIVATIONS`.
        normalize: whether vectors are normalised by running statistics first.
    """

    hidden: tuple[int, ...]
    activation: str
    normalize: bool


@dataclass(frozen=True, eq=False)
class Networks:
    """Your own networks for `train(config, networks=...)`.

    Attributes:
        actor: from a batch of observations (a tensor [batch, ...] in the space's dtype, or a dict or tuple of them) to
            the numbers the action distribution needs, [batch, n]: one a choice for discrete actions, the means for Box
            with A2C and PPO (their deviations are learnt beside it), means and log deviations (2n) for SAC, the numbers
            that tanh turns into actions (n) for TD3, the value of each choice for DQN. For Dict and Tuple actions those
            of all parts, in the order of the space.
        critic: from observations to values [batch] or [batch, 1]. For SAC and TD3 it is called with observations and
            actions [batch, n] and gives two estimates, [batch, 2]. DQN has none.
    """

    actor: nn.Module
    critic: nn.Module | None = None

    def required_critic(self) -> nn.Module:
        """The critic, for an algorithm that has one."""
        if self.critic is None:
            raise TypeError("This algorithm needs a critic too: networks=Networks(actor=..., critic=...).")
        return self.critic


def hidden_layers(sizes: Sequence[int], activation: str) -> list[nn.Module]:
    """Fully connected layers from each width to the next, an activation function after each."""
    layers: list[nn.Module] = []
    for inputs, width in pairwise(sizes):
        layers += [orthogonal(nn.Linear(inputs, width)), ACTIVATIONS[activation]()]
    return layers


class Perceptron(nn.Module):
    """An encoder and fully connected layers, orthogonally initialised; the last layer with its own gain."""

    def __init__(self, space: Space[Any], outputs: int, layout: Layout, last_gain: float) -> None:
        super().__init__()
        self.encoder = encoder(space, normalize=layout.normalize)
        sizes = [self.encoder.features, *layout.hidden]
        layers = hidden_layers(sizes, layout.activation)
        self.layers = nn.Sequential(*layers, orthogonal(nn.Linear(sizes[-1], outputs), last_gain))

    def forward(self, observations: Tensors) -> Tensor:
        """Outputs [batch, outputs]."""
        outputs: Tensor = self.layers(self.encoder(observations))
        return outputs


class DuelingPerceptron(nn.Module):
    """An encoder and two perceptrons after it: the value of a state, and what each choice adds to the mean of all.

    The last hidden layer of each is its own; the layers before it are shared.
    """

    def __init__(self, space: Space[Any], choices: int, layout: Layout, last_gain: float) -> None:
        super().__init__()
        self.encoder = encoder(space, normalize=layout.normalize)
        sizes = [self.encoder.features, *layout.hidden]
        self._shared = nn.Sequential(*hidden_layers(sizes[:-1], layout.activation))
        own = sizes[-2:] if layout.hidden else sizes

        def stream(outputs: int) -> nn.Module:
            last = orthogonal(nn.Linear(sizes[-1], outputs), last_gain)
            return nn.Sequential(*hidden_layers(own, layout.activation), last)

        self._value, self._advantages = stream(1), stream(choices)

    def forward(self, observations: Tensors) -> Tensor:
        """The value of every choice, [batch, choices]."""
        shared = self._shared(self.encoder(observations))
        advantages: Tensor = self._advantages(shared)
        values: Tensor = self._value(shared) + advantages - advantages.mean(-1, keepdim=True)
        return values


class Actor(nn.Module):
    """From observations to the outputs an action distribution needs.

    Args:
        body: from observations to [batch, n].
        distribution: what the outputs are for. For DiagonalNormal, alone or as a part of a Joint, the body gives the
            means, and the log deviations are parameters that do not depend on the observation.
        initial_log_std: where those start.
    """

    def __init__(self, body: nn.Module, distribution: ActionDistribution, initial_log_std: float = 0.0) -> None:
        super().__init__()
        self.body = body
        self.distribution = distribution
        self._body_outputs = distribution.network_outputs
        learned = distribution.outputs - self._body_outputs
        self.log_std = nn.Parameter(torch.full((learned,), initial_log_std)) if learned else None

    def forward(self, observations: Tensors) -> Tensor:
        """Outputs [batch, distribution.outputs]."""
        outputs: Tensor = self.body(observations)
        if outputs.ndim != 2 or outputs.shape[1] != self._body_outputs:
            raise ValueError(
                f"The actor must give [batch, {self._body_outputs}] for these actions, got {list(outputs.shape)}."
            )
        if self.log_std is None:
            return outputs
        return torch.cat([outputs, self.log_std.expand(outputs.shape[0], -1)], -1)


class Critic(nn.Module):
    """From observations to one value each.

    Args:
        body: from observations to [batch] or [batch, 1].
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, observations: Tensors) -> Tensor:
        """Values [batch]."""
        values: Tensor = self.body(observations)
        if values.ndim != 1 and values.shape[1:] != (1,):
            raise ValueError(f"The critic must give [batch] or [batch, 1], got {list(values.shape)}.")
        return values.flatten()


class TwinCritic(nn.Module):
    """Two estimates of the value of observations and actions: one encoder, two perceptrons side by side."""

    def __init__(self, space: Space[Any], action_size: int, layout: Layout) -> None:
        super().__init__()
        self.encoder = encoder(space, normalize=layout.normalize)
        sizes = [self.encoder.features + action_size, *layout.hidden]
        layers: list[nn.Module] = []
        for inputs, width in pairwise(sizes):
            layers += [PairLinear(inputs, width), ACTIVATIONS[layout.activation]()]
        self.layers = nn.Sequential(*layers, PairLinear(sizes[-1], 1))

    def forward(self, observations: Tensors, actions: Tensor) -> Tensor:
        """Values [batch, 2] of observations and actions [batch, action_size]."""
        inputs = torch.cat([self.encoder(observations), actions], -1)
        values: Tensor = self.layers(inputs.expand(2, *inputs.shape))
        return values.squeeze(-1).T


class PairLinear(nn.Module):
    """Two linear layers applied to two batches [2, batch, n] in one multiplication."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(2, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, 1, outputs).uniform_(-bound, bound))

    def forward(self, values: Tensor) -> Tensor:
        """[2, batch, outputs]."""
        return torch.baddbmm(self.bias, values, self.weight)


def observe(module: nn.Module, observations: Tensors) -> None:
    """Count a batch in the running statistics of our own encoders inside `module`."""
    for part in module.modules():
        inner = getattr(part, "encoder", None)
        if isinstance(inner, Encoder):
            inner.observe(observations)
