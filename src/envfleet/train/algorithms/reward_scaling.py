"""Rewards on a scale that networks learn from well, whatever the environment's own is.

Each environment keeps its discounted return so far, `g = gamma * g + reward`, from 0 in every episode. Rewards are
divided by the standard deviation of all g there have been, so that what the critic has to predict is of the order of 1.
They are not shifted: a reward keeps its sign.

    rows of one environment     r r r | r r . r | d d d | r r     . no transition   d dropped   | an episode ended
    the discounted return       g g g   g g g g   - - -   g g     from 0 after | and after d; passed on over .
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np
import torch
from torch import Tensor

from envfleet.train.algorithms.returns import discounted_so_far
from envfleet.train.collecting import Rollout
from envfleet.wrappers._moments import RunningMoments

LARGEST_NORMALIZED = 10.0
"""No normalised reward is larger. Where rewards are rare, nearly all g are 0 and their deviation says too little."""


@final
class RewardScaling:
    """The factor that rewards are multiplied by before they are learnt from.

    Args:
        num_envs: how many environments there are.
        gamma: discount factor of the returns.
        reward_scale: multiplies all rewards.
        normalize: whether they are divided by the deviation of the discounted return as well. Without it the factor is
            `reward_scale`, and nothing is counted, calculated or saved.
    """

    def __init__(self, num_envs: int, gamma: float, reward_scale: float, *, normalize: bool) -> None:
        self._gamma = gamma
        self._reward_scale = reward_scale
        self._normalizes = normalize
        self._moments = RunningMoments.empty()
        self._largest = 0.0
        """The largest reward so far, without its sign."""
        self._returns = np.zeros(num_envs)
        """The discounted returns of the episodes under way."""

    @property
    def factor(self) -> float:
        """What a reward is to be multiplied by, as far as is known now."""
        return self._reward_scale / self._deviation() if self._normalizes else self._reward_scale

    def count(self, rollout: Rollout) -> None:
        """Add a rollout's rewards to the statistics; rows that are no transitions are left out."""
        if not self._normalizes:
            return
        if rollout.fresh:
            self._returns[:] = 0.0
        ended = rollout.done if rollout.dropped is None else rollout.done | rollout.dropped
        returns, self._returns = discounted_so_far(rollout.rewards, rollout.valid, ended, self._gamma, self._returns)
        rows = np.flatnonzero(rollout.valid)
        if rows.size:
            envs = rows % len(self._returns)
            self._moments = self._moments.including(returns.ravel()[rows], envs, "discounted return")
            self._largest = max(self._largest, float(np.abs(rollout.rewards.ravel()[rows]).max()))

    def tensors(self) -> dict[str, Tensor]:
        """What is needed to go on exactly."""
        if not self._normalizes:
            return {}
        numbers = {
            "count": np.int64(self._moments.count),
            "mean": self._moments.mean,
            "m2": self._moments.m2,
            "largest": np.float64(self._largest),
            "returns": self._returns,
        }
        return {f"reward_scaling.{name}": torch.from_numpy(np.array(value)) for name, value in numbers.items()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `tensors()` gave, which may be among others."""
        if not self._normalizes:
            return
        arrays = {name: tensors[f"reward_scaling.{name}"].numpy() for name in ("count", "mean", "m2")}
        largest, returns = (tensors[f"reward_scaling.{name}"].numpy() for name in ("largest", "returns"))
        if returns.shape != self._returns.shape or returns.dtype != np.float64 or not np.isfinite(returns).all():
            raise ValueError(f"The saved returns must be {len(self._returns)} finite numbers, got {returns}.")
        if largest.shape != () or not 0 <= largest < np.inf:
            raise ValueError(f"The saved largest reward must be a number of 0 or more, got {largest}.")
        self._moments = self._moments.loaded(arrays)
        self._largest = float(largest)
        self._returns = returns.copy()

    def _deviation(self) -> float:
        deviation = float(np.sqrt(self._moments.var)) if self._moments.count else 0.0
        # Nothing but zeros so far: there is nothing to scale.
        return max(deviation, self._largest / LARGEST_NORMALIZED) or 1.0
