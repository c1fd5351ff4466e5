"""What Linux says about processes, memory and the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PROC = Path("/proc")
PACKAGES = ("envfleet", "gymnasium", "numpy", "mujoco", "box2d")


@dataclass(frozen=True)
class Machine:
    """Where a benchmark ran."""

    platform: str
    cores: int
    usable_cores: int
    versions: dict[str, str]
    processor: str = "unknown"


def this_machine() -> Machine:
    """Describe the machine and the installed packages."""
    found = {"python": platform.python_version(), **dict.fromkeys(PACKAGES, "not installed"), **versions(PACKAGES)}
    return Machine(platform.platform(), os.cpu_count() or 1, len(os.sched_getaffinity(0)), found, _processor())


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Of those packages that are installed."""
    found = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _processor() -> str:
    for line in (PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def descendants() -> frozenset[int]:
    """The process ids of this process's children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for directory in PROC.iterdir():
        if directory.name.isdecimal() and (fields := _stat_fields(int(directory.name))):
            children.setdefault(int(fields[1]), []).append(int(directory.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return frozenset(found)


def cpu_seconds(pids: Iterable[int]) -> float:
    """The processor time that living processes have used since they began, all threads."""
    ticks = sum(int(fields[11]) + int(fields[12]) for pid in pids if (fields := _stat_fields(pid)))
    return ticks / os.sysconf("SC_CLK_TCK")


def pss_bytes(pids: Iterable[int]) -> int:
    """Proportional set size summed over processes: a page that n processes share counts 1/n in each."""
    return sum(_pss_bytes(pid) for pid in pids)


def _pss_bytes(pid: int) -> int:
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the kernel reports no PSS for process {pid}")


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command: state, parent, ...; none if the process is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()
