"""Memory that is free but still this process's: given back from time to time."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def give_back_memory() -> None:
    """Let the system have the memory that this process has freed.

    Gradient steps take and free blocks of many sizes, and small blocks that stay, such as what a run notes down, come
    to lie between them. The C library then returns nothing by itself: a long run of SAC was seen to hold gigabytes of
    free memory. Where the C library has no such call, nothing happens.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
