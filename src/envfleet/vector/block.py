"""The memory of one fleet: what lies where, and the rows of each shard."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, final

import numpy as np
import numpy.typing as npt

from envfleet.redraw import PLACE_WORDS
from envfleet.vector.infos import ROW_BYTES
from envfleet.vector.layout import Array, SpaceLayout
from envfleet.vector.pages import PageLayout, PageRows
from envfleet.vector.spaces import FleetSpaces

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
    """The rows of the block that belong to a shard: views, one row per environment.

    Attributes:
        progress: The shard's own: the cell of its ``_core.Progress``, and one that holds an ``Activity``.
        restarts: How often each was restarted since it was last given a seed.
        rebuilt: How often each was brought back to where it was.
        touched: Whether a call may have changed it since it was made.
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
        self.num_envs, self.autoreset_mode = n, spaces.autoreset_mode
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
