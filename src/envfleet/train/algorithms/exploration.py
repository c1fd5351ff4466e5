"""Noise to explore with, that stays the same way for a while.

Noise drawn afresh at every step cancels out within a few of them: a lander that trembles finds out what trembling is
worth, and never what follows from leaving its engines off for half a second. So each step's noise is mostly that of the
step before. At any single step it is the standard normal noise that it would have been anyway.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from envfleet.train.collecting import Rows


@final
class PersistentNoise:
    """Standard normal noise for `num_envs` environments, `size` components each.

    Args:
        correlation: of a component's noise in two successive steps of an environment; 0 draws each afresh.
    """

    def __init__(self, num_envs: int, size: int, correlation: float, device: torch.device) -> None:
        self._correlation = correlation
        self._rest = math.sqrt(1 - correlation**2)
        self._noise = torch.randn(num_envs, size, device=device)

    def draw(self, env_ids: Rows | None = None) -> Tensor:
        """The next noise of these environments, by default of all: [len(env_ids), size]."""
        rows = slice(None) if env_ids is None else torch.from_numpy(env_ids)
        before = self._noise[rows]
        drawn = self._correlation * before + self._rest * torch.randn_like(before)
        self._noise[rows] = drawn
        return drawn

    def state(self) -> Tensor:
        """What `load_state` goes on from."""
        return self._noise.clone()

    def load_state(self, noise: Tensor) -> None:
        """Go on from what `state` gave."""
        self._noise.copy_(noise)


def uniform(noise: Tensor) -> Tensor:
    """Standard normal noise as noise that is uniform between -1 and 1, and as persistent."""
    return torch.erf(noise / math.sqrt(2))
