"""What a cell holds of the system: processes with its mark in their environment, and the shared memory they use."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

PROC = Path("/proc")
MARK = "ENVFLEET_FAULT_CELL"
POLL_SECONDS = 0.02
_SHARED = re.compile(r" (\d+) +(/dev/shm/\S+|/memfd:\S+)( \(deleted\))?$")


@dataclass(frozen=True)
class Left:
    """What was there when the time was over, or how long it took until nothing was."""

    processes: int
    shared_files: int
    held_shared_memory: int
    seconds: float


@final
class Belongings:
    """Processes and shared memory of one cell, found by its mark whoever their parent is by now."""

    def __init__(self, mark: str) -> None:
        self._needle = f"{MARK}={mark}\0".encode()
        self._files: set[Path] = set()

    def processes(self) -> list[int]:
        """The living processes; zombies have no environment."""
        found = []
        for directory in PROC.iterdir():
            if directory.name.isdecimal():
                with suppress(OSError):
                    if self._needle in (directory / "environ").read_bytes() + b"\0":
                        found.append(int(directory.name))
        return found

    def look_at_memory(self) -> None:
        """Remember the files in /dev/shm that its processes use now, to look for them later."""
        for pid in self.processes():
            self._files |= {path for _, path in _shared_memory(pid) if path.exists()}

    def wait_until_gone(self, but: frozenset[int], seconds: float) -> Left:
        """Wait until no process is left, except those in `but`, and count what is left after `seconds`."""
        begin = time.monotonic()
        while True:
            pids = [pid for pid in self.processes() if pid not in but]
            passed = time.monotonic() - begin
            if not pids or passed > seconds:
                held = {inode for pid in pids for inode, _ in _shared_memory(pid)}
                return Left(len(pids), sum(path.exists() for path in self._files), len(held), round(passed, 2))
            time.sleep(POLL_SECONDS)

    def remove(self) -> None:
        """End what is left, by its id, and remove its files."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for path in self._files:
            path.unlink(missing_ok=True)


def _shared_memory(pid: int) -> set[tuple[str, Path]]:
    """Inodes and paths of what a process has mapped."""
    with suppress(OSError):
        lines = (PROC / str(pid) / "maps").read_text().splitlines()
        found = [match for line in lines if (match := _SHARED.search(line))]
        return {(match[1], Path(match[2])) for match in found}
    return set()
