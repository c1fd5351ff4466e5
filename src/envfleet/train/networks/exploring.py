"""Policies that always do the same, and explore by what is put on top: DQN's and TD3's.

| action space | distribution | network outputs for a batch of B | actions             | explored by               |
|--------------|--------------|----------------------------------|---------------------|---------------------------|
| Discrete(n)  | EpsilonGreedy| the value of each choice [B, n]  | int64 [B]           | another choice now and then |
| Box          | NoisyTanh    | numbers for tanh [B, n]          | float32 [B, *shape] | noise that is added       |
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
from gymnasium import Space, spaces
from torch import Tensor

from envfleet.train.networks.distributions import (
    ActionDistribution,
    Categorical,
    action_shape,
    check_continuous,
    is_continuous,
)

_LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


@final
class EpsilonGreedy(Categorical):
    """The choice with the highest value; any of them, with a probability of `epsilon`.

    A choice with the value minus infinity is forbidden: it is never taken, not at random either.
    """

    def __init__(self, n: int, start: int, epsilon: float) -> None:
        super().__init__(n, start)
        self.epsilon = epsilon

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Actions int64[batch]."""
        return self.explored(outputs, self.epsilon, generator)

    def explored(self, outputs: Tensor, epsilon: float, generator: torch.Generator | None = None) -> Tensor:
        """Actions int64[batch], with another probability of a random one."""
        lots = torch.empty_like(outputs).uniform_(generator=generator)
        anything = torch.where(outputs == -math.inf, -1.0, lots).argmax(-1) + self.start
        chance = torch.empty(len(outputs), device=outputs.device).uniform_(generator=generator)
        return torch.where(chance < epsilon, anything, self.mode(outputs))

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-probabilities [batch]."""
        return self._probabilities(outputs).gather(-1, (actions - self.start).unsqueeze(-1)).squeeze(-1).log()

    def entropy(self, outputs: Tensor) -> Tensor:
        """Entropies [batch]."""
        entropies: Tensor = torch.special.entr(self._probabilities(outputs))
        return entropies.sum(-1)

    def _probabilities(self, outputs: Tensor) -> Tensor:
        allowed = (outputs != -math.inf).to(outputs)
        best = torch.nn.functional.one_hot(outputs.argmax(-1), self.outputs).to(outputs)
        return self.epsilon * allowed / allowed.sum(-1, keepdim=True) + (1 - self.epsilon) * best


@final
class NoisyTanh(ActionDistribution):
    """The outputs' tanh, between -1 and 1; drawn from, with Gaussian noise added and what is beyond the bounds cut off.

    The probability of an action is that of the number before it was cut off.
    """

    def __init__(self, shape: tuple[int, ...], deviation: float) -> None:
        self.outputs = math.prod(shape)
        self.shape = shape
        self.deviation = deviation

    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Actions float32[batch, *shape]."""
        return self.sample_with_noise(outputs, torch.empty_like(outputs).normal_(generator=generator))

    def sample_with_noise(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """The actions [batch, *shape] that standard normal noise [batch, components] leads to."""
        return (outputs.tanh() + self.deviation * noise).clamp(-1, 1).reshape(-1, *self.shape)

    def mode(self, outputs: Tensor) -> Tensor:
        """Actions float32[batch, *shape]; differentiable in the outputs."""
        return outputs.tanh().reshape(-1, *self.shape)

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """Log-densities [batch]."""
        distance = (actions.reshape(outputs.shape) - outputs.tanh()) / self.deviation
        return (-0.5 * distance.square() - math.log(self.deviation) - _LOG_SQRT_2_PI).sum(-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """Differential entropies [batch], the same for all."""
        entropy = self.outputs * (math.log(self.deviation) + 0.5 + _LOG_SQRT_2_PI)
        return torch.full((len(outputs),), entropy, device=outputs.device)


def epsilon_greedy(space: Space[Any], epsilon: float) -> EpsilonGreedy:
    """DQN's policy for actions of `space`, which must be one choice."""
    if isinstance(space, spaces.Discrete):
        return EpsilonGreedy(int(space.n), int(space.start), epsilon)
    others = "SAC, TD3, A2C or PPO" if is_continuous(space) else "A2C or PPO"
    raise TypeError(f"DQN needs actions that are one choice, Discrete, got {space}; use {others}, which take it.")


def noisy_tanh(space: Space[Any], deviation: float) -> NoisyTanh:
    """TD3's policy for actions of `space`, which must be continuous."""
    check_continuous(space, "TD3")
    return NoisyTanh(action_shape(space), deviation)
