"""The arrays of a native fleet, one row per environment, in one block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete, MultiDiscrete

from envfleet import _core, _native
from envfleet.native.planned_episodes import EpisodePlans
from envfleet.vector.block import BlockLayout, aligned_zeros
from envfleet.vector.engine import Report, Rows, StepResult
from envfleet.vector.infos import Info
from envfleet.vector.layout import Array, Columns, LayoutError, SpaceLayout
from envfleet.vector.spaces import FleetSpaces

_FLAGS = ("terminated", "truncated", "finished", "out")


@final
class NativeBlock:
    """What a pool reads and writes, and what the fleet shows of it.

    Args:
        spaces: The fleet's spaces. Actions must be one array.
        info_columns: Name, dtype and shape of each key of the infos.
    """

    def __init__(self, spaces: FleetSpaces, info_columns: Sequence[tuple[str, str, tuple[int, ...]]]) -> None:
        self._num_envs = n = spaces.num_envs
        self._action_space = spaces.single_action_space
        self._observations = SpaceLayout(spaces.single_observation_space, "observation")
        self._actions = SpaceLayout(spaces.single_action_space, "action")
        ((_, action_shape, action_dtype),) = self._actions.array_leaves
        leaves = [(f"{i}", (n, *shape), dtype) for i, shape, dtype in self._observations.array_leaves]
        infos = [(name, (n, *shape), np.dtype(dtype)) for name, dtype, shape in info_columns]
        self._arrays = BlockLayout(
            (
                ("actions", (n, *action_shape), action_dtype),
                ("rewards", (n,), np.dtype(np.float64)),
                ("turns", (n,), np.dtype(np.uint8)),
                *((flag, (n,), np.dtype(np.bool_)) for flag in _FLAGS),
                *((f"{when} {what} {name}", shape, dtype)
                  for when in ("current", "final")
                  for what, fields in (("observation", leaves), ("info", infos))
                  for name, shape, dtype in fields),
            )
        )  # fmt: skip
        self._block = self._arrays.arrays(aligned_zeros(self._arrays.size))
        self._columns = self._all_columns("current")
        self._final_columns = self._all_columns("final")
        self.rewards: npt.NDArray[np.float64] = self._block["rewards"]
        self.terminated, self.truncated, self.finished, self.out = (self._block[flag] for flag in _FLAGS)
        self._pool: _native.Pool | None = None
        self._plans: EpisodePlans | None = None

    def pool_arrays(self) -> _native.PoolArrays:
        """The arrays as the pool takes them."""
        alone = self._observations.is_single_array
        return _native.PoolArrays(
            self._named("current observation"),
            self._named("final observation"),
            self._named("current info"),
            self._named("final info"),
            self._block["actions"],
            self.rewards,
            self.terminated,
            self.truncated,
            self.finished,
            self._block["turns"],
            self.out,
            # Not methods of this object, which names the pool: it would never be freed.
            None if alone else partial(self._observations.batch, self._columns),
            None if alone else partial(_single_row, self._observations, self._final_columns),
        )

    def attach(self, pool: _native.Pool, plans: EpisodePlans | None) -> None:
        """Names the pool that writes here, which puts the infos together, and who plans its episodes, if anybody."""
        self._pool, self._plans = pool, plans

    def _named(self, start: str) -> list[Array]:
        return [array for name, array in self._block.items() if name.startswith(f"{start} ")]

    def _all_columns(self, when: str) -> Columns:
        return self._observations.columns(self._named(f"{when} observation"), self._num_envs)

    def store_actions(
        self,
        actions: Any,
        rows: Rows | None = None,
        *,
        were_tried: bool = False,  # noqa: ARG002
    ) -> list[list[Any]]:
        """Checks all actions, then writes them, into all rows or the given ones; nothing travels beside the block."""
        where: Any = slice(None) if rows is None else rows
        (column,) = self._actions.checked(actions, self._num_envs if rows is None else len(rows))
        if isinstance(self._action_space, Discrete | MultiDiscrete):
            check_range(np.asarray(column), self._action_space, awaits_reset=self.finished[where])
        self._block["actions"][where] = column
        return []

    def parameter_cells(self) -> npt.NDArray[np.float64]:
        """The parameters drawn for the present episodes, as numbers: float64[num_envs, parameters]."""
        return np.empty((self._num_envs, 0)) if self._plans is None else self._plans.cells()

    def observations(self, copy: bool) -> Any:
        """The batched observations: fresh arrays, or live views that the next step overwrites."""
        return self._observations.batch(self._columns, copy)

    def reset_results(self, reports: Sequence[Report | None], copy: bool) -> tuple[Any, Info]:  # noqa: ARG002
        """What ``reset`` returns of the turn that just ended; all of it lies in the block."""
        assert self._pool is not None
        return self.observations(copy), self._pool.infos()

    def step_results(self, reports: Sequence[Report | None], copy: bool) -> StepResult:  # noqa: ARG002
        """What ``step`` returns of the turn that just ended."""
        assert self._pool is not None
        numbers = (_core.fresh_copy(column) for column in (self.rewards, self.terminated, self.truncated))
        return self.observations(copy), *numbers, self._pool.infos()

    def ticket_results(self, rows: Rows, reports: Sequence[Report | None]) -> StepResult:  # noqa: ARG002
        """What ``recv`` returns of the given environments; fresh arrays."""
        assert self._pool is not None
        observations, infos = self._observations.taken(self._columns, rows), self._pool.infos_of(rows)
        numbers = (_core.fresh_rows(column, rows) for column in (self.rewards, self.terminated, self.truncated))
        return observations, *numbers, infos


def check_range(actions: Array, space: Discrete | MultiDiscrete, awaits_reset: npt.NDArray[np.bool_]) -> None:
    """Refuses actions outside a discrete space, but those of rows about to be reset, which ignore them."""
    last = space.start + (space.n if isinstance(space, Discrete) else space.nvec) - 1
    outside = ((actions < space.start) | (actions > last)).reshape(len(actions), -1).any(axis=1)
    wrong = np.flatnonzero(outside & ~awaits_reset)
    if wrong.size:
        place = int(wrong[0])
        raise LayoutError(f"action[{place}]: expected {space.start} to {last}, got {actions[place]}")


def _single_row(layout: SpaceLayout, columns: Columns, row: int) -> Any:
    return _unbatched(layout.batch([column[row : row + 1] for column in columns], False))


def _unbatched(value: Any) -> Any:
    """The only row of a batched value, as a single environment returns it."""
    if isinstance(value, dict):
        return {key: _unbatched(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_unbatched(part) for part in value)
    return value[0].copy() if value.ndim > 1 else value[0].item()
