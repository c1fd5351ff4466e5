"""Processes, as files that outlive them name them: by number, machine and moment of their start."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_place() -> str:
    """Where process numbers mean what they mean here: the machine, and in containers the container."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {namespace}".strip()


def start_of(pid: int) -> str | None:
    """When a process of this machine started, in the kernel's units; None where nobody knows."""
    fields = _status(pid)
    return fields[19] if fields is not None else None


def is_running(pid: int, started: str | None = None) -> bool:
    """Whether there is such a process on this machine, and it is the one that started then.

    Process numbers are used again. A process that ended and that its parent did not look after is not running.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # there is one, and it is somebody else's
        pass
    fields = _status(pid)
    if fields is None:
        return True
    return fields[0] not in ("Z", "X") and started in (None, fields[19])


def _status(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on, the state."""
    try:
        # The second is the program's name in parentheses, and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
