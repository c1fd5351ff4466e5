"""How much of the machine is ours."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores() -> int:
    """The cores this process may use: its affinity, and a container's CPU quota where there is one."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, math.ceil(int(quota) / int(period))))
