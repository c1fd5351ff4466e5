"""The block of one fleet: actions in, observations, rewards, flags and infos out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from envfleet.vector.buffers import Array, BlockLayout, Columns, SpaceLayout
from envfleet.vector.infos import ROW_BYTES, Info, InfoReader
from envfleet.vector.orders import Report
from envfleet.vector.shard import ShardRows
from envfleet.vector.spaces import FleetSpaces


class Buffers(Protocol):
    """What a fleet asks of its arrays, whoever writes them: ``FleetBuffers`` below, or a native pool's."""

    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]

    def store_actions(self, actions: Any) -> list[list[Any]]:
        """Checks all actions, then writes them; returns those of the loose leaves, which travel beside."""

    def absorb(self, reports: Sequence[Report | None]) -> None:
        """Takes over what travelled beside the block and outlasts the turn."""

    def observations(self, copy: bool) -> Any:
        """The batched observations: fresh arrays, or live views that the next step overwrites."""

    def infos(self, reports: Sequence[Report | None]) -> Info:
        """The batched infos of the turn that just ended."""


@final
class FleetLayout:
    """Where everything lies. The same in every process, as it follows from the spaces alone."""

    def __init__(self, spaces: FleetSpaces, control_bytes: int = 0) -> None:
        n = spaces.num_envs
        self.num_envs = n
        self.observations = SpaceLayout(spaces.single_observation_space, "observation")
        self.actions = SpaceLayout(spaces.single_action_space, "action")
        byte, flag = np.dtype(np.uint8), np.dtype(np.bool_)
        self._block = BlockLayout(
            (
                ("control", (control_bytes,), byte),
                ("rewards", (n,), np.dtype(np.float64)),
                ("terminated", (n,), flag),
                ("truncated", (n,), flag),
                ("info_kinds", (n,), byte),
                ("info_rows", (n, ROW_BYTES), byte),
                *((f"action {i}", (n, *shape), dtype) for i, shape, dtype in self.actions.array_leaves),
                *((f"observation {i}", (n, *shape), dtype) for i, shape, dtype in self.observations.array_leaves),
            )
        )
        self.size = self._block.size

    def arrays(self, memory: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """All arrays by name, as views on ``memory``."""
        return self._block.arrays(memory)

    def rows(self, memory: npt.NDArray[np.uint8], first: int, last: int) -> ShardRows:
        """The rows of the environments first..last-1."""
        arrays = self.arrays(memory)
        part = slice(first, last)
        return ShardRows(
            observation_arrays=[arrays[f"observation {i}"][part] for i, _, _ in self.observations.array_leaves],
            action_arrays=[arrays[f"action {i}"][part] for i, _, _ in self.actions.array_leaves],
            rewards=arrays["rewards"][part],
            terminated=arrays["terminated"][part],
            truncated=arrays["truncated"][part],
            info_rows=arrays["info_rows"][part],
            info_kinds=arrays["info_kinds"][part],
        )


@final
class FleetBuffers:
    """The caller's view on the whole block. ``bounds`` are the ``(first, last + 1)`` rows of each shard."""

    def __init__(self, layout: FleetLayout, memory: npt.NDArray[np.uint8], bounds: Sequence[tuple[int, int]]) -> None:
        everything = layout.rows(memory, 0, layout.num_envs)
        self._layout, self._bounds = layout, bounds
        self._observation_columns: Columns = layout.observations.columns(everything.observation_arrays, layout.num_envs)
        self._action_arrays = everything.action_arrays
        self._info_reader = InfoReader(everything.info_rows, everything.info_kinds, bounds)
        self.rewards = everything.rewards
        self.terminated = everything.terminated
        self.truncated = everything.truncated

    def store_actions(self, actions: Any) -> list[list[Any]]:
        """Checks all actions, then writes them; returns those of the loose leaves, which travel beside."""
        columns = self._layout.actions.checked(actions, self._layout.num_envs)
        for (leaf, _, _), array in zip(self._layout.actions.array_leaves, self._action_arrays, strict=True):
            array[...] = columns[leaf]
        return [list(columns[leaf]) for leaf in self._layout.actions.loose_leaves]

    def absorb(self, reports: Sequence[Report | None]) -> None:
        """Takes over what travelled beside the block and outlasts the turn: loose observations, schemas."""
        self._info_reader.absorb([report.infos if report is not None else None for report in reports])
        loose_leaves = self._layout.observations.loose_leaves
        for (first, last), report in zip(self._bounds, reports, strict=True):
            if report is not None and report.loose_observations:
                for leaf, values in zip(loose_leaves, report.loose_observations, strict=True):
                    self._observation_columns[leaf][first:last] = values

    def observations(self, copy: bool) -> Any:
        """The batched observations: fresh arrays, or live views that the next step overwrites."""
        return self._layout.observations.batch(self._observation_columns, copy)

    def infos(self, reports: Sequence[Report | None]) -> Info:
        """The batched infos of the turn that just ended."""
        return self._info_reader.read([report.infos if report is not None else None for report in reports])
