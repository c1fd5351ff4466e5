"""The memory of one fleet: what lies where, the rows of each shard, and what the caller reads and writes there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.redraw import PLACE_WORDS
from envfleet.vector.engine import Report
from envfleet.vector.infos import ROW_BYTES, Info, InfoReader
from envfleet.vector.layout import Array, Columns, SpaceLayout
from envfleet.vector.pages import PageLayout, PageRows, Pages
from envfleet.vector.spaces import FleetSpaces

Rows: TypeAlias = npt.NDArray[np.intp]

# An episode's number, the kind of its origin, the seed or that of its generator, the generator's state.
START_WORDS = 8


_CELLS_A_LINE = 8
"""Each shard counts its progress on a cache line of its own."""


class Activity(IntEnum):
    """What a shard is doing, where that matters to whoever waits for it."""

    ANYTHING = 0
    MAKING = 1
    REBUILDING = 2


@dataclass(frozen=True)
class BlockRows:
    """The rows of the block that belong to a shard: views, one row an environment.

    Attributes:
        progress: The shard's own: the cell of its ``_core.Progress``, and one that holds an ``Activity``.
        restarts: How often each was restarted since it was last given a seed.
        rebuilt: How often each was brought back to where it was.
        touched: Whether anything but steps and resets may have changed it since it was made.
        episodes: See ``EpisodeStarts``, as for ``starts``.
        digests: What each has shown since its episode began, see ``_core.Digests``.
    """

    observation_arrays: list[Array]
    pages: PageRows
    action_arrays: list[Array]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    restarted: npt.NDArray[np.bool_]
    restarts: npt.NDArray[np.uint32]
    rebuilt: npt.NDArray[np.uint32]
    touched: npt.NDArray[np.bool_]
    episodes: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.uint64]
    digests: npt.NDArray[np.uint64]
    progress: npt.NDArray[np.uint64]
    parameters: npt.NDArray[np.float64]
    streams: npt.NDArray[np.uint64]
    info_rows: npt.NDArray[np.uint8]
    info_kinds: npt.NDArray[np.uint8]


class Buffers(Protocol):
    """What a fleet asks of its arrays, whoever writes them: ``FleetBuffers`` below, or a native pool's."""

    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    restarted: npt.NDArray[np.bool_]

    @property
    def batch(self) -> _core.Batch | None:
        """All of them, for steps with actions that are one array; None where there are no such steps."""

    @property
    def pages(self) -> Pages | None:
        """What observations of such steps are handed out on, if on anything."""

    def observations_on(self, page: Mapping[int, Array]) -> Any:
        """The batched observations, fresh: the leaves that lie on a page from there, copies of the others."""

    def store_actions(self, actions: Any, rows: Rows | None = None) -> list[list[Any]]:
        """Checks all actions, then writes them, into all rows or the given ones.

        Returns those of the loose leaves, which travel beside.
        """

    def parameter_cells(self) -> npt.NDArray[np.float64]:
        """The parameters drawn for the present episodes, as numbers: float64[num_envs, parameters]."""

    def absorb(self, reports: Sequence[Report | None]) -> None:
        """Takes over what travelled beside the block and outlasts the turn."""

    def observations(self, copy: bool) -> Any:
        """The batched observations: fresh arrays, or live views that the next step overwrites."""

    def infos(self, reports: Sequence[Report | None]) -> Info:
        """The batched infos of the turn that just ended."""

    def absorb_rows(self, rows: Rows, reports: Sequence[Report | None]) -> None:
        """Takes over what travelled beside the block with results that came one by one."""

    def observations_of(self, rows: Rows) -> Any:
        """The observations of the given rows as one batch of fresh arrays."""

    def infos_of(self, rows: Rows, reports: Sequence[Report | None]) -> Info:
        """The infos of the given rows, in arrays of their number."""

    def remember(self, rows: Rows | None = None) -> None:
        """Keeps the present observations, of all rows or the given ones."""

    def recall(self, row: int) -> Any:
        """The observation that was kept of one row."""

    def restore(self, row: int) -> None:
        """Puts the observation that was kept back into its row."""


_CACHE_LINE = 64


@dataclass(frozen=True)
class BlockLayout:
    """Named arrays laid one after another in a block, each starting on a cache line of its own."""

    fields: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]

    @property
    def size(self) -> int:
        """The bytes of the whole block."""
        return sum(_padded(shape, dtype) for _, shape, dtype in self.fields)

    def arrays(self, memory: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """The arrays as views on ``memory``, which must hold ``size`` bytes."""
        arrays, offset = {}, 0
        for name, shape, dtype in self.fields:
            arrays[name] = np.ndarray(shape, dtype, memory.data, offset)
            offset += _padded(shape, dtype)
        return arrays


def _padded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return -(-size // _CACHE_LINE) * _CACHE_LINE


def aligned_zeros(size: int) -> npt.NDArray[np.uint8]:
    """A block of ``size`` zeros that starts on a cache line, as other libraries want what they are to use in place."""
    memory = np.zeros(size + _CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE
    return memory[start : start + size]


@final
class FleetLayout:
    """Where everything lies. The same in every process, as it follows from what all of them know.

    ``num_parameters`` is how many each environment draws anew for every episode.
    """

    def __init__(
        self,
        spaces: FleetSpaces,
        *,
        num_parameters: int = 0,
        num_pages: int = 0,
        control_bytes: int = 0,
        refuse_nan: bool = False,
    ) -> None:
        n = spaces.num_envs
        self.num_envs = n
        self.observations = SpaceLayout(spaces.single_observation_space, "observation", refuse_nan=refuse_nan)
        self.actions = SpaceLayout(spaces.single_action_space, "action")
        self.pages = PageLayout(self.observations.array_leaves, n, num_pages)
        byte, flag = np.dtype(np.uint8), np.dtype(np.bool_)
        self._block = BlockLayout(
            (
                # First, as the block starts where a page of memory does.
                ("pages", (self.pages.count, self.pages.page_bytes), byte),
                ("open_page", (1,), byte),
                ("copies_made", (1,), np.dtype(np.uint64)),
                ("control", (control_bytes,), byte),
                ("rewards", (n,), np.dtype(np.float64)),
                ("terminated", (n,), flag),
                ("truncated", (n,), flag),
                ("restarted", (n,), flag),
                ("restarts", (n,), np.dtype(np.uint32)),
                ("rebuilt", (n,), np.dtype(np.uint32)),
                ("touched", (n,), flag),
                ("episodes", (n,), np.dtype(np.uint64)),
                ("starts", (n, 2, START_WORDS), np.dtype(np.uint64)),
                ("digests", (n,), np.dtype(np.uint64)),
                ("progress", (n, _CELLS_A_LINE), np.dtype(np.uint64)),
                ("parameters", (n, num_parameters), np.dtype(np.float64)),
                ("streams", (n, 2, PLACE_WORDS), np.dtype(np.uint64)),
                ("info_kinds", (n,), byte),
                ("info_rows", (n, ROW_BYTES), byte),
                *((f"action {i}", (n, *shape), dtype) for i, shape, dtype in self.actions.array_leaves),
                *((f"observation {i}", (n, *shape), dtype) for i, shape, dtype in self.observations.array_leaves),
            )
        )
        self.size = self._block.size

    @property
    def is_repeatable(self) -> bool:
        """Whether actions and observations lie in the block, all of them, so that they can be kept and compared."""
        return bool(self.actions.array_leaves) and not (self.actions.loose_leaves or self.observations.loose_leaves)

    def arrays(self, memory: npt.NDArray[np.uint8]) -> dict[str, Array]:
        """All arrays by name, as views on ``memory``."""
        return self._block.arrays(memory)

    def rows(self, memory: npt.NDArray[np.uint8], first: int, last: int) -> BlockRows:
        """The rows of the environments first..last-1."""
        arrays = self.arrays(memory)
        part = slice(first, last)
        return BlockRows(
            pages=self.pages.rows(arrays["pages"], arrays["open_page"], part),
            observation_arrays=[arrays[f"observation {i}"][part] for i, _, _ in self.observations.array_leaves],
            action_arrays=[arrays[f"action {i}"][part] for i, _, _ in self.actions.array_leaves],
            rewards=arrays["rewards"][part],
            terminated=arrays["terminated"][part],
            truncated=arrays["truncated"][part],
            restarted=arrays["restarted"][part],
            restarts=arrays["restarts"][part],
            rebuilt=arrays["rebuilt"][part],
            touched=arrays["touched"][part],
            episodes=arrays["episodes"][part],
            starts=arrays["starts"][part],
            digests=arrays["digests"][part],
            progress=arrays["progress"][first, :2],
            parameters=arrays["parameters"][part],
            streams=arrays["streams"][part],
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
        self.restarted = everything.restarted
        self._parameters = everything.parameters
        self._last: Columns = []
        self.pages = self._make_pages(memory) if layout.pages.count else None
        self.batch = self._make_batch(everything) if layout.actions.is_single_array else None

    def _make_pages(self, memory: npt.NDArray[np.uint8]) -> Pages:
        arrays = self._layout.arrays(memory)
        return Pages(self._layout.pages, arrays["pages"], arrays["open_page"], arrays["copies_made"])

    def _make_batch(self, rows: BlockRows) -> _core.Batch:
        alone = self._layout.observations.is_single_array
        observations = rows.observation_arrays[0] if alone else self.observations
        flags = rows.terminated, rows.truncated
        return _core.Batch(rows.action_arrays[0], observations, rows.rewards, *flags, rows.info_kinds)

    def store_actions(self, actions: Any, rows: Rows | None = None) -> list[list[Any]]:
        """Checks all actions, then writes them, into all rows or the given ones.

        Returns those of the loose leaves, which travel beside.
        """
        batch = self.batch
        if batch is not None and (batch.put(actions) if rows is None else batch.put_some(rows, actions)):
            return []
        columns = self._layout.actions.checked(actions, self._layout.num_envs if rows is None else len(rows))
        where = ... if rows is None else rows
        for (leaf, _, _), array in zip(self._layout.actions.array_leaves, self._action_arrays, strict=True):
            array[where] = columns[leaf]
        return [list(columns[leaf]) for leaf in self._layout.actions.loose_leaves]

    def parameter_cells(self) -> npt.NDArray[np.float64]:
        """The parameters drawn for the present episodes, as numbers: float64[num_envs, parameters]."""
        return self._parameters

    # -- a turn: all rows, one report a shard ---------------------------------------------------------

    def absorb(self, reports: Sequence[Report | None]) -> None:
        """Takes over what travelled beside the block and outlasts the turn: loose observations, schemas."""
        if not any(reports):
            return
        self._info_reader.absorb([report.infos if report is not None else None for report in reports])
        for (first, last), report in zip(self._bounds, reports, strict=True):
            self._absorb_loose(report, slice(first, last))

    def observations(self, copy: bool) -> Any:
        """The batched observations: fresh arrays, or live views that the next step overwrites."""
        return self._layout.observations.batch(self._observation_columns, copy)

    def observations_on(self, page: Mapping[int, Array]) -> Any:
        """The batched observations, fresh: the leaves that lie on a page from there, copies of the others."""
        columns = [page[leaf] if leaf in page else deepcopy(c) for leaf, c in enumerate(self._observation_columns)]
        return self._layout.observations.batch(columns, copy=False)

    def infos(self, reports: Sequence[Report | None]) -> Info:
        """The batched infos of the turn that just ended."""
        return self._info_reader.read([report.infos if report is not None else None for report in reports])

    # -- some rows, one report each -------------------------------------------------------------------

    def absorb_rows(self, rows: Rows, reports: Sequence[Report | None]) -> None:
        """The same for results that came one by one."""
        if not any(reports):
            return
        self._info_reader.absorb_rows(rows, [report.infos if report is not None else None for report in reports])
        for row, report in zip(rows.tolist(), reports, strict=True):
            self._absorb_loose(report, slice(row, row + 1))

    def observations_of(self, rows: Rows) -> Any:
        """The observations of the given rows as one batch of fresh arrays."""
        return self._layout.observations.taken(self._observation_columns, rows)

    def infos_of(self, rows: Rows, reports: Sequence[Report | None]) -> Info:
        """The infos of the given rows, in arrays of their number."""
        return self._info_reader.read_rows(rows, [report.infos if report is not None else None for report in reports])

    def _absorb_loose(self, report: Report | None, rows: slice) -> None:
        if report is not None and report.loose_observations:
            leaves = self._layout.observations.loose_leaves
            for leaf, values in zip(leaves, report.loose_observations, strict=True):
                self._observation_columns[leaf][rows] = values

    # -- the last observations, for episodes that are cut off by a failure ----------------------------

    def remember(self, rows: Rows | None = None) -> None:
        """Keeps the present observations, of all rows or the given ones: a killed worker may leave half a row."""
        if not self._last or rows is None:
            self._last = [deepcopy(column) for column in self._observation_columns]
            return
        for kept, column in zip(self._last, self._observation_columns, strict=True):
            for row in rows.tolist():
                kept[row] = deepcopy(column[row])

    def recall(self, row: int) -> Any:
        """The observation that was kept of one row."""
        return self._layout.observations.row(self._last, row)

    def restore(self, row: int) -> None:
        """Puts the observation that was kept back into its row."""
        for column, kept in zip(self._observation_columns, self._last, strict=True):
            column[row] = kept[row]
