"""Policies that remember: a state is carried from step to step, and begins at zero with every episode.

observation, state ──▶ memory ──▶ next state ──▶ actor ──▶ outputs of the action distribution
└──▶ critic ─▶ value
"""

from __future__ import annotations

from typing import Any, final

import torch
from gymnasium import Space
from torch import Tensor, nn

from envfleet.train.networks.distributions import ActionDistribution
from envfleet.train.networks.encoders import encoder
from envfleet.train.networks.networks import Actor
from envfleet.train.observations import Tensors, map_leaves


@final
class GRUMemory(nn.Module):
    """An encoder for the observation space and a gated recurrent unit.

    Args:
        space: of the observations of a single environment.
        size: numbers in the state.
        normalize: whether vectors are normalised by running statistics first.
    """

    def __init__(self, space: Space[Any], size: int, *, normalize: bool = False) -> None:
        super().__init__()
        self.encoder = encoder(space, normalize=normalize)
        self.cell = nn.GRUCell(self.encoder.features, size)

    def forward(self, observations: Tensors, state: Tensor) -> Tensor:
        """The next state [batch, size]."""
        following: Tensor = self.cell(self.encoder(observations), state)
        return following


@final
class MemoryActor(nn.Module):
    """An actor that remembers: from observations and a state to outputs and the next state.

    Args:
        memory: from observations and a state [batch, state_size] to the next state.
        actor: from states to the outputs of the action distribution.
        state_size: numbers in the state.
    """

    def __init__(self, memory: nn.Module, actor: Actor, state_size: int) -> None:
        super().__init__()
        self.memory, self.actor = memory, actor
        self.state_size = state_size

    @property
    def distribution(self) -> ActionDistribution:
        """What the outputs are for."""
        return self.actor.distribution

    def forward(self, observations: Tensors, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [batch, n], and the states after these observations [batch, state_size].

        Args:
            observations: a batch of them.
            state: the states before, float32[batch, state_size].
            resets: whose observation is the first of an episode, bool[batch]: their state before counts as zero.
        """
        following: Tensor = self.memory(observations, state.masked_fill(resets.unsqueeze(-1), 0.0))
        if following.shape != state.shape:
            raise ValueError(f"The memory must give states {list(state.shape)}, got {list(following.shape)}.")
        return self.actor(following), following

    def along(self, observations: Tensors, state: Tensor, resets: Tensor) -> tuple[Tensor, Tensor]:
        """The same for one step after another: outputs [steps, batch, n] and states [steps, batch, state_size].

        Args:
            observations: [steps, batch, ...].
            state: the states before the first step, float32[batch, state_size].
            resets: bool[steps, batch].
        """
        outputs, states = [], []
        for step, begins in enumerate(resets):
            output, state = self(map_leaves(lambda leaf, now=step: leaf[now], observations), state, begins)
            outputs.append(output)
            states.append(state)
        return torch.stack(outputs), torch.stack(states)


@final
class CarriedStates:
    """The states of an agent's environments between two calls, a row each.

    Args:
        size: numbers in a state.
        device: where they are.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self._rows = torch.zeros(0, size, device=device)
        self._begun = torch.zeros(0, dtype=torch.bool)

    def read(self, env_ids: Tensor, resets: Tensor) -> Tensor:
        """Those of the given environments, int64[n]; one that has not begun an episode must be among the resets."""
        missing = int(env_ids.max()) + 1 - len(self._rows)
        if missing > 0:
            self._rows = torch.cat([self._rows, self._rows.new_zeros(missing, self._rows.shape[1])])
            self._begun = torch.cat([self._begun, self._begun.new_zeros(missing)])
        lost = env_ids[~(self._begun[env_ids] | resets)].tolist()
        if lost:
            raise ValueError(
                f"This policy remembers, and environment {lost[0]} has begun no episode yet: its reset must be True in "
                "the first call, and again whenever its observation is the first of an episode."
            )
        return self._rows[env_ids]

    def write(self, env_ids: Tensor, states: Tensor) -> None:
        """Keep the states after a step."""
        self._rows[env_ids] = states
        self._begun[env_ids] = True
