"""Whether this process has threads that do not survive a fork."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WATCHDOG = "envfleet-watch"  # see cpp/engine/watchdog.h

_ENDING = 0.05
"""Seconds within which a thread that has been joined is gone from the kernel's list, too."""


def has_threads() -> bool:
    """Whether there are threads besides this one that a forked copy of this process would miss.

    A fork copies only the thread that calls it. What the others hold or were about to do is left as it was at that
    moment: locks that nobody opens, pools that wait for threads that do not exist. Libraries that care about forks end
    their threads right before one and start them again when needed, as NumPy's OpenBLAS does, which has them from the
    time it is imported. So a copy is made, which ends at once, and whoever is still there then counts.
    """
    if _count() == 1:
        return False
    with forks_unreported():
        copy = os.fork()
    if copy == 0:
        os._exit(0)
    os.waitpid(copy, 0)
    deadline = time.monotonic() + _ENDING
    while _count() > 1:
        if time.monotonic() > deadline:
            return True
        time.sleep(_ENDING / 50)
    return False


def _count() -> int:
    """The threads of this process, but for the one by which a worker ends with its caller: it holds nothing."""
    try:
        return sum(_name(task) != _WATCHDOG for task in Path("/proc/self/task").iterdir())
    except OSError:  # a sandbox without /proc
        return threading.active_count()


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:  # it has ended meanwhile, and still counts: whoever asks looks again
        return ""


@contextmanager
def forks_unreported() -> Iterator[None]:
    """Keeps Python from warning of forks, which it does since 3.12 also where all threads are those that care."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
