"""What this process and its workers hold of the system."""

from __future__ import annotations

import os
from dataclasses import dataclass

from harness.machine import PROC, descendants, pss_bytes


@dataclass(frozen=True)
class Vitals:
    """One look. Counts are of the caller; memory is that of the caller and of all workers together."""

    seconds: float
    processes: int
    threads: int
    descriptors: int
    shared_files: int
    memory_bytes: int


def look(seconds: float) -> Vitals:
    """Look now, so many seconds after the beginning."""
    workers = descendants()
    return Vitals(
        seconds,
        processes=len(workers),
        threads=len(list((PROC / "self" / "task").iterdir())),
        descriptors=len(list((PROC / "self" / "fd").iterdir())),
        shared_files=len(os.listdir("/dev/shm")),  # noqa: PTH208  their number is all that matters
        memory_bytes=pss_bytes([os.getpid(), *workers]),
    )
