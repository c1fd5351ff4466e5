"""Keeps observations that lie in shared memory apart from those of forked copies of the caller."""

from __future__ import annotations

import os
from weakref import WeakSet

from envfleet.vector.pages import Pages

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
