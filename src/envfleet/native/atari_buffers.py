"""What ale-py's vector environment takes and gives, in the layout of all fleets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode

from envfleet.vector.layout import Array, LayoutError, SpaceLayout
from envfleet.vector.block import Rows
from envfleet.vector.infos import Info
from envfleet.vector.engine import Report
from envfleet.vector.spaces import FleetSpaces

_KEYS = ("lives", "frame_number", "episode_frame_number")
_FINAL = "final_obs"


@final
class AtariBuffers:
    """The results of the last turn, and the actions of the next.

    ale-py returns fresh arrays at every step, so that nothing has to be copied.
    """

    def __init__(self, spaces: FleetSpaces) -> None:
        n = spaces.num_envs
        self._layout = SpaceLayout(spaces.single_action_space, "action")
        self._space = spaces.single_action_space
        self._ends_at_once = spaces.autoreset_mode is AutoresetMode.SAME_STEP
        ((_, shape, dtype),) = self._layout.array_leaves
        self.actions: Array = np.zeros((n, *shape), dtype)
        self._observations: Array = np.zeros(spaces.observation_space.shape or (), np.uint8)
        self._infos: Info = {}
        self._told = np.zeros(n, np.bool_)
        self.rewards = np.zeros(n)
        self.batch = self.pages = None
        self.terminated, self.truncated, self.restarted = (np.zeros(n, np.bool_) for _ in range(3))

    def store_actions(self, actions: Any, rows: Rows | None = None) -> list[list[Any]]:
        """Checks all actions, then writes them; none travels beside."""
        (column,) = self._layout.checked(actions, len(self.actions) if rows is None else len(rows))
        column = np.asarray(column)
        self._check_range(column)
        self.actions[slice(None) if rows is None else rows] = column
        return []

    def _check_range(self, actions: Array) -> None:
        # Also those of games that are about to start again, which ignore them: ale-py does not.
        if isinstance(self._space, Discrete):
            low, high = self._space.start, self._space.start + self._space.n - 1
        else:
            low, high = self._space.low, self._space.high  # type: ignore[attr-defined]
        wrong = np.flatnonzero(~((actions >= low) & (actions <= high)).reshape(len(actions), -1).all(axis=1))
        if wrong.size:
            place = int(wrong[0])
            raise LayoutError(f"action[{place}]: expected {low} to {high}, got {actions[place]}")

    # -- what ale-py returned -------------------------------------------------------------------------

    def take_step(self, observations: Array, rewards: Array, terminated: Array, truncated: Array, infos: Info) -> None:
        """Takes over the results of a step."""
        self._observations, self._infos = observations, infos
        self.rewards = rewards.astype(np.float64)
        self.terminated, self.truncated = terminated, truncated
        self._told[:] = True

    def take_reset(self, mask: npt.NDArray[np.bool_], observations: Array, infos: Info) -> None:
        """Takes over the results of a reset of the environments in the mask."""
        self._observations, self._infos = observations, infos
        self.rewards[mask] = 0.0
        self.terminated, self.truncated = self.terminated & ~mask, self.truncated & ~mask
        self._told[:] = mask

    # -- what the fleet shows of it -------------------------------------------------------------------

    def parameter_cells(self) -> npt.NDArray[np.float64]:
        """None: games have no parameters to randomise."""
        return np.empty((len(self.actions), 0))

    def absorb(self, reports: Sequence[Report | None]) -> None:
        """Nothing travels beside."""

    def absorb_rows(self, rows: Rows, reports: Sequence[Report | None]) -> None:
        """Nothing travels beside."""

    def observations(self, copy: bool) -> Array:  # noqa: ARG002  fresh anyway
        """The batched observations, uint8[num_envs, ...]."""
        return self._observations

    def observations_of(self, rows: Rows) -> Array:  # noqa: ARG002
        """The observations of the given rows, which are always all of them."""
        return self._observations

    def observations_on(self, page: Mapping[int, Array]) -> Any:  # noqa: ARG002
        """There are no pages."""
        raise AssertionError("no page was opened")

    def infos(self, reports: Sequence[Report | None]) -> Info:  # noqa: ARG002
        """The batched infos of the turn that just ended."""
        infos: Info = {}
        for key in _KEYS:
            infos[key], infos[f"_{key}"] = self._infos[key], self._told.copy()
        ended = self.terminated | self.truncated
        if self._ends_at_once and _FINAL in self._infos and ended.any():
            finals = np.full(len(ended), None, dtype=object)
            for env in np.flatnonzero(ended).tolist():
                finals[env] = self._infos[_FINAL][env].copy()
            infos[_FINAL], infos[f"_{_FINAL}"] = finals, ended
            infos["final_info"], infos["_final_info"] = {}, ended.copy()  # ale-py keeps none
        return infos

    def infos_of(self, rows: Rows, reports: Sequence[Report | None]) -> Info:  # noqa: ARG002
        """The infos of the given rows, which are always all of them."""
        return self.infos(reports)

    # -- failures, which games do not have ------------------------------------------------------------

    def remember(self, rows: Rows | None = None) -> None:
        """Nothing: games are never made again."""

    def recall(self, row: int) -> Any:
        """Nothing was kept."""
        raise AssertionError(f"environment {row} was not restarted")

    def restore(self, row: int) -> None:
        """Nothing was kept."""
        raise AssertionError(f"environment {row} was not restarted")
