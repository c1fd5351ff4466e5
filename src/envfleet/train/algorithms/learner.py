"""What the training loop needs of an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from gymnasium import Space
from torch import Tensor, nn

from envfleet.train.collecting import Rollout, Rows
from envfleet.train.networks.networks import Actor, Networks
from envfleet.train.observations import Array, Observations


@dataclass(frozen=True, eq=False)
class Task:
    """What an algorithm is to learn, and where.

    Attributes:
        observation_space: of a single environment.
        action_space: of a single environment.
        num_envs: how many there are.
        device: where the networks live.
        networks: the user's own, or None for ours.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    num_envs: int
    device: torch.device
    networks: Networks | None = None


class Learner(Protocol):
    """An algorithm: it acts, and it learns from what came of it.

    Attributes:
        rollout_steps: steps of every environment it wants to see between two calls of `learn`.
        off_policy: whether it learns from whatever there is, and not only from its latest policy's whole rollouts.
        actor: the policy, which is what is kept in the end.
        modules: every network by name, for checkpoints; "actor" and "critic" are saved as weights too.
        optimizers: every optimiser by name, for checkpoints.
    """

    rollout_steps: int
    off_policy: bool
    actor: Actor
    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, torch.optim.Optimizer]

    def act(self, observations: Observations, env_ids: Rows | None = None) -> Array:
        """Actions to explore with, one a row; `env_ids` says whose observations these are, None: everybody's."""
        ...

    def learn(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Learn from a rollout; `progress` goes from 0 to 1 over the run. Returns figures for the log."""
        ...

    def extra_tensors(self) -> dict[str, Tensor]:
        """What else a checkpoint must hold."""
        ...

    def load_extra_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `extra_tensors` gave."""
        ...
