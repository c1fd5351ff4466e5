"""Large observations that are handed out where the shards wrote them.

To copy a batch of images takes the caller longer than the shards need to write them, and meanwhile the shards have
nothing to do. So every shard writes such a row twice while it has it in its cache: into the block, which stays the
fleet's own, and into a page, which is handed out as it is. A page is used again when nobody refers to it any more;
while all of them are referred to, the caller copies.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet import _core

Array: TypeAlias = npt.NDArray[Any]
Leaf: TypeAlias = tuple[int, tuple[int, ...], np.dtype[Any]]

_NUM_PAGES = 3
"""A loop refers to the observations it acts on and to those that came of it, and may keep those before."""

LEAST_BYTES = 2**17
"""What the caller copies in less time than it takes to hand a page out need not lie on one."""


def num_pages(*, copy: bool, restarts: bool, autoreset_mode: AutoresetMode) -> int:
    """How many a fleet has; none where it does not hand out copies, or where a step may leave rows as they were."""
    return _NUM_PAGES if copy and not restarts and autoreset_mode is not AutoresetMode.DISABLED else 0


@dataclass(frozen=True)
class PageRows:
    """What a shard knows of the pages.

    Attributes:
        arrays: Its rows of each page, by leaf.
        open_page: uint8 (1,): the page that is to be written, counted from 1, or 0.
    """

    arrays: Mapping[int, list[Array]] = field(default_factory=dict)
    open_page: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1, np.uint8))


@final
class PageLayout:
    """Which leaves lie on pages, and where; each page has whole pages of the machine's memory to itself.

    Attributes:
        count: How many pages there are.
        page_bytes: The size of one.
    """

    def __init__(self, leaves: Sequence[Leaf], num_envs: int, count: int) -> None:
        self._fields: dict[int, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        offset = 0
        for leaf, shape, dtype in leaves:
            size = num_envs * int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            if shape and size >= LEAST_BYTES:
                self._fields[leaf] = offset, (num_envs, *shape), dtype
                offset += size + -size % mmap.PAGESIZE
        self.count = count if self._fields else 0
        self.page_bytes = offset

    def arrays(self, page: npt.NDArray[np.uint8]) -> dict[int, Array]:
        """The arrays of a page by leaf."""
        return {leaf: np.ndarray(shape, dtype, page.data, at) for leaf, (at, shape, dtype) in self._fields.items()}

    def rows(self, pages: npt.NDArray[np.uint8], open_page: npt.NDArray[np.uint8], part: slice) -> PageRows:
        """The part of all pages that a shard writes."""
        arrays = [self.arrays(page) for page in pages]
        return PageRows({leaf: [page[leaf][part] for page in arrays] for leaf in self._fields}, open_page)


@final
class _Lease:
    """The owner of an array that is handed out: all that is made of the array refers to this.

    Not to the array: a view refers to whoever its array took its memory from, if that is an array too.
    """

    def __init__(self, array: Array) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


@final
class Pages:
    """The caller's side: opens a page for a turn, and hands it out.

    Args:
        layout: Of one page.
        memory: uint8 (count, page_bytes).
        open_page: As in ``PageRows``.
        copies_made: uint64 (1,): how many forked copies of the caller have made what they refer to their own.
    """

    def __init__(
        self,
        layout: PageLayout,
        memory: npt.NDArray[np.uint8],
        open_page: npt.NDArray[np.uint8],
        copies_made: npt.NDArray[np.uint64],
    ) -> None:
        self._count, self._memory = layout.count, memory
        self._open_page, self._copies_made = open_page, copies_made
        self._arrays = [layout.arrays(page) for page in memory]
        self._opened = -1  # the block says so too, but there anybody may write anything
        self._leases: list[list[weakref.ref[_Lease]]] = [[] for _ in range(layout.count)]
        self._forks = 0
        self._awaiting_copies: set[int] = set()
        self._is_in_fork = False

    def open(self) -> None:
        """Has the next turn written on a page that nobody refers to, if there is one."""
        if self._awaiting_copies and self._copies_made[0] == self._forks:
            self._awaiting_copies.clear()
        free = (page for page in range(self._count) if not self._is_held(page))
        self._opened = next((page for page in free if page not in self._awaiting_copies), -1)
        self._open_page[0] = 1 + self._opened

    def close(self) -> dict[int, Array]:
        """Closes the page that was open and gives its arrays, by leaf, to be handed out; none if none was."""
        page, self._opened = self._opened, -1
        self._open_page[0] = 0
        if page < 0:
            return {}
        leases = {leaf: _Lease(array) for leaf, array in self._arrays[page].items()}
        self._leases[page] = [weakref.ref(lease) for lease in leases.values()]
        return {leaf: np.asarray(lease) for leaf, lease in leases.items()}

    def _is_held(self, page: int) -> bool:
        return any(lease() is not None for lease in self._leases[page])

    # -- forked copies of the caller, which refer to the same pages without our knowing -------------------

    def before_fork(self) -> None:
        """What is referred to now is not written again before the copy has made it its own."""
        if not self._is_in_fork:
            self._forks += 1
            self._awaiting_copies |= {page for page in range(self._count) if self._is_held(page)}

    def after_fork(self) -> None:
        """In the copy: what it refers to becomes its own, so that neither sees what the other writes."""
        if self._is_in_fork:
            return
        self._is_in_fork = True
        for page in range(self._count):
            if self._is_held(page):
                _core.make_private(self._memory[page])
        _core.count_up(self._copies_made)


_shared: WeakSet[Pages] = WeakSet()


def keep_apart(pages: Pages) -> None:
    """From now on a forked copy of this process gets what it refers to for itself."""
    _shared.add(pages)


def _before() -> None:
    for pages in list(_shared):
        pages.before_fork()


def _after_in_child() -> None:
    for pages in list(_shared):
        pages.after_fork()


os.register_at_fork(before=_before, after_in_child=_after_in_child)
