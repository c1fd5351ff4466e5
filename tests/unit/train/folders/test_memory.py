from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from envfleet.train.folders.memory import give_back_memory

MEGABYTE = 2**20


def resident() -> int:
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library cannot give memory back")
def test_what_lies_between_small_blocks_that_stay_is_given_back() -> None:
    size = 60_000  # such blocks are not mapped by themselves
    large, small = [], []
    for _ in range(64 * MEGABYTE // size):
        large.append(bytearray(size))
        small.append(bytearray(600))  # too large for Python's own pools
    full = resident()
    large.clear()
    give_back_memory()
    assert full - resident() > 40 * MEGABYTE
    assert len(small[-1]) == 600
