"""What the tests of failures share: an environment that fails on command, and the proof that nothing stays behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

sys.path.insert(
    0, str(Path(__file__).parents[2] / "benchmarks")
)  # the soak's environment and oracle are those of these tests

# Python's own helpers: they serve the whole life of this process and end with it.
HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


def belongings() -> Counter[str]:
    """What this process holds: children other than Python's helpers, open files, threads, shared files."""
    children = psutil.Process().children(recursive=True)
    held = Counter(f"process {child.pid}" for child in children if _is_left(child))
    held.update(f"shared file {name}" for name in os.listdir("/dev/shm"))  # noqa: PTH208
    held["descriptors"] = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number matters
    held["threads"] = threading.active_count()
    return held


def _is_left(process: psutil.Process) -> bool:
    try:
        while not (command := process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
            pass  # on its way from fork to exec
        return process.status() != psutil.STATUS_ZOMBIE and not any(name in " ".join(command) for name in HELPERS)
    except psutil.Error:
        return False  # gone while it was looked at


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Assert that a file of tests leaves no process, open file, thread or shared memory that was not there before."""
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # type: ignore[attr-defined]
    gc.collect()
    before = belongings()
    yield
    deadline = time.monotonic() + 10
    # Only what came: files of tests that ran earlier may have left garbage that is gone by now.
    while (left := belongings() - before) and time.monotonic() < deadline:
        gc.collect()
    assert not left


@pytest.fixture(params=["fork", "spawn"], scope="module")
def start_method(request: pytest.FixtureRequest) -> str:
    """Fork inherits everything, spawn nothing; other start methods lie in between."""
    return str(request.param)


@pytest.fixture(params=["fork alone", "fork shared", "spawn alone", "spawn shared"], scope="module")
def sharing(request: pytest.FixtureRequest) -> tuple[int, str]:
    """How many environments share a worker, and how it is started."""
    start_method, how = request.param.split()
    return {"alone": 1, "shared": 3}[how], start_method
