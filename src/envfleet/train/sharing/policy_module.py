"""A policy as one torch module: from observations, as environments give them, to actions, as they take them.

    observations ──▶ normalisation ──▶ network ──▶ likeliest action ──▶ bounds of the action space

Inputs and outputs are flat lists of tensors, one a leaf of the space, because files have no nested ones.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from envfleet.train.agent import Agent
from envfleet.train.networks.distributions import is_continuous
from envfleet.train.networks.encoders import Normalizer
from envfleet.train.networks.memory import MemoryActor
from envfleet.train.observations import Array
from envfleet.wrappers._leaves import named_leaves, unflatten
from envfleet.wrappers.bounded_action import ActionMap


@final
class PolicyModule(nn.Module):
    """The deterministic policy of an agent, on its own.

    A policy that remembers takes two inputs more, its state float32[batch, n] and resets bool[batch], and gives the
    next state as one output more.

    Args:
        agent: nothing of it is changed.

    Attributes:
        input_names: of the tensors that `forward` takes.
        output_names: of those it returns.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self._space = agent.observation_space
        self.actor = _with_fixed_normalizers(copy.deepcopy(agent.actor).cpu().eval()).requires_grad_(False)
        leaves = named_leaves(agent.action_space)
        self._bounds = nn.ModuleList([_leaf_module(leaf) for _, leaf in leaves])
        self._shapes = [tuple(leaf.shape or ()) for _, leaf in leaves]
        self._widths = [math.prod(shape) for shape in self._shapes]
        self._is_nested = isinstance(agent.action_space, (spaces.Dict, spaces.Tuple))
        self.remembers = isinstance(agent.actor, MemoryActor)
        more_in, more_out = (["state", "resets"], ["next_state"]) if self.remembers else ([], [])
        self.input_names = _names("observation", self._space) + more_in
        self.output_names = _names("action", agent.action_space) + more_out

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Actions, a tensor per leaf of the action space, for a batch of observations, a tensor per leaf of theirs."""
        if not self.remembers:
            return self._actions(self.actor(unflatten(self._space, inputs)))
        *observations, state, resets = inputs
        outputs, following = self.actor(unflatten(self._space, observations), state, resets)
        return (*self._actions(outputs), following)

    def _actions(self, outputs: Tensor) -> tuple[Tensor, ...]:
        distribution: Any = self.actor.distribution
        actions: Tensor = distribution.mode(outputs)
        if not self._is_nested:
            return (self._bounds[0](actions),)
        columns = torch.split(actions, self._widths, dim=-1)
        parts = zip(columns, self._shapes, self._bounds, strict=True)
        return tuple(fit(column.reshape(-1, *shape)) for column, shape, fit in parts)


class _FixedNormalizer(nn.Module):
    """What a `Normalizer` does with the statistics it has now."""

    mean: Tensor
    scale: Tensor

    def __init__(self, normalizer: Normalizer) -> None:
        super().__init__()
        mean, scale = normalizer.scaling()
        self.register_buffer("mean", mean.clone())
        self.register_buffer("scale", scale.clone())
        self._clip = normalizer.clip

    def forward(self, observations: Tensor) -> Tensor:
        return ((observations - self.mean) * self.scale).clamp(-self._clip, self._clip).float()


class _Bounds(nn.Module):
    """`ActionMap` in torch: to the same bounds, with the same numbers."""

    def __init__(self, found: ActionMap, dtype: torch.dtype) -> None:
        super().__init__()
        for name in ("least", "most", "scale", "centre", "low", "high"):
            self.register_buffer(name, torch.tensor(getattr(found, name)))
        self._dtype = dtype

    def forward(self, actions: Tensor) -> Tensor:
        units = torch.minimum(torch.maximum(actions.double(), self.least), self.most)  # type: ignore[arg-type]
        mapped = units * self.scale + self.centre  # type: ignore[operator]
        return torch.minimum(torch.maximum(mapped, self.low), self.high).to(self._dtype)  # type: ignore[arg-type]


class _Cast(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def forward(self, actions: Tensor) -> Tensor:
        return actions.to(self._dtype)


def _leaf_module(leaf: Space[Any]) -> nn.Module:
    dtype = _dtype(leaf)
    if is_continuous(leaf):
        assert isinstance(leaf, spaces.Box)
        return _Bounds(ActionMap.between(leaf.low, leaf.high), dtype)
    return _Cast(dtype)


def _dtype(leaf: Space[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, leaf.dtype)).dtype


def _names(what: str, space: Space[Any]) -> list[str]:
    return [f"{what}/{path}" if path else what for path, _ in named_leaves(space)]


def _with_fixed_normalizers(network: nn.Module) -> nn.Module:
    for name, part in network.named_children():
        if isinstance(part, Normalizer):
            setattr(network, name, _FixedNormalizer(part))
        else:
            _with_fixed_normalizers(part)
    return network


def state_size(agent: Agent) -> int:
    """How many numbers a policy that remembers carries; 0 if it does not."""
    return agent.actor.state_size if isinstance(agent.actor, MemoryActor) else 0


Run = Callable[[list[Array]], list[Array]]
"""A policy as it was written to a file: from arrays to arrays."""
