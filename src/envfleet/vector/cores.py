"""How much of the machine is ours."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores() -> int:
    """The cores this process may use: its affinity, and a container's CPU quota where there is one."""
    cores = _allowed_cores()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, math.ceil(int(quota) / int(period))))


def _allowed_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # another system, or a sandbox that forbids the question
        return os.cpu_count() or 1
