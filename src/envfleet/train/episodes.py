"""Returns and lengths of whole episodes, put together from rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from envfleet.train.collecting import Rollout


@dataclass(frozen=True)
class Episode:
    """One finished episode: the undiscounted sum of its rewards, and its steps."""

    episode_return: float
    length: int


class EpisodeTracker:
    """Adds up rewards per environment until episodes end.

    It works on rollouts and not step by step, so that statistics cost nothing while environments wait.
    """

    def __init__(self, num_envs: int) -> None:
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)

    def restart(self) -> None:
        """Forget the episodes under way: all environments were reset."""
        self._returns[:] = 0
        self._lengths[:] = 0

    def finished(self, rollout: Rollout, checked: Rollout | None = None) -> list[Episode]:
        """The episodes that ended in `rollout`, in the order in which they ended.

        Args:
            rollout: as it was collected.
            checked: the same without episodes that are not to count, if there are any.
        """
        counted = rollout if checked is None else checked
        returns = np.cumsum(np.where(counted.valid, counted.rewards, 0.0), axis=0)
        lengths = np.cumsum(counted.valid, axis=0)
        episodes = []
        for step, env in zip(*np.nonzero(rollout.done), strict=True):
            if counted.done[step, env]:
                episodes.append(
                    Episode(
                        float(self._returns[env] + returns[step, env]), int(self._lengths[env] + lengths[step, env])
                    )
                )
            self._returns[env] = -returns[step, env]
            self._lengths[env] = -lengths[step, env]
        self._returns += returns[-1]
        self._lengths += lengths[-1]
        return episodes

    def state(self) -> dict[str, Any]:
        """What is needed to go on, as plain numbers."""
        return {"returns": self._returns.tolist(), "lengths": self._lengths.tolist()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state()` gave."""
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
