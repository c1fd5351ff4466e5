"""Processes that tests look at."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable


def still_running(pids: Iterable[int], timeout: float) -> list[int]:
    """Wait until the processes have ended and return those that have not in time."""
    deadline = time.monotonic() + timeout
    return [pid for pid in pids if not _ends_before(pid, deadline)]


def _ends_before(pid: int, deadline: float) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        left = max(0.0, deadline - time.monotonic())
        return bool(select.select([descriptor], [], [], left)[0])
    finally:
        os.close(descriptor)
