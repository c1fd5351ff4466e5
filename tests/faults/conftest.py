"""What the tests of failures share: an environment that fails on command, and the proof that nothing stays behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

sys.path.insert(
    0, str(Path(__file__).parents[2] / "benchmarks")
)  # the soak's environment and oracle are those of these tests

# Python's own helpers: they serve the whole life of this process and end with it.
HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


def belongings() -> dict[str, object]:
    """What this process holds: children, open files other than Python's helpers', threads, shared files."""
    children = [child for child in psutil.Process().children(recursive=True) if not _is_helper(child)]
    return {
        "processes": len([child for child in children if child.status() != psutil.STATUS_ZOMBIE]),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - only their number matters
        "threads": threading.active_count(),
        "shared files": sorted(os.listdir("/dev/shm")),  # noqa: PTH208
    }


def _is_helper(process: psutil.Process) -> bool:
    try:
        while not (command := process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
            pass  # on its way from fork to exec
    except psutil.Error:
        return False
    return any(name in " ".join(command) for name in HELPERS)


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Assert that a file of tests leaves no process, open file, thread or shared memory that was not there before."""
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # type: ignore[attr-defined]
    before = belongings()
    yield
    deadline = time.monotonic() + 10
    while (after := belongings()) != before and time.monotonic() < deadline:
        gc.collect()
    assert after == before


@pytest.fixture(params=["fork", "spawn"], scope="module")
def start_method(request: pytest.FixtureRequest) -> str:
    """Fork inherits everything, spawn nothing; other start methods lie in between."""
    return str(request.param)


@pytest.fixture(params=[1, 3], ids=["alone", "shared"], scope="module")
def envs_a_worker(request: pytest.FixtureRequest) -> int:
    """How many environments share a worker."""
    return int(request.param)
