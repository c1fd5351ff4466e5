"""No hang: two hundred fleets of environments with threads, by every start method, restarts included."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from libraries import inherited

CREATIONS = {"fork": 80, "default": 40, "forkserver": 40, "spawn": 40}
SHARE = float(os.environ.get("ENVFLEET_HANGING_SHARE", "1"))
"""A smaller number is for a first look."""

FOR_EACH = 90.0
"""Seconds per fleet: several workers import torch and JAX, some of them twice."""

IDLE = 45.0
"""Seconds in which workers that are waited for do something, however busy the machine is: those that do not, hang."""


@pytest.mark.timeout(0)  # the program has a watchdog of its own
@pytest.mark.parametrize("context", CREATIONS)
def test_no_fleet_hangs(context: str, tmp_path: Path) -> None:
    count = max(3, round(CREATIONS[context] * SHARE))
    program = Path(__file__).with_name("hanging.py")
    command = [sys.executable, "-W", "error::RuntimeWarning", str(program), context, str(count)]
    told, errors = tmp_path / "told", tmp_path / "errors"
    with told.open("w") as stdout, errors.open("w") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=inherited())
        try:
            problem = what_is_wrong(process, told, FOR_EACH * count)
        finally:
            process.kill()
            process.wait()
    assert not problem, f"{problem}\n{told.read_text()[-200:]}\n{errors.read_text()[-4000:]}"
    assert process.returncode == 0, errors.read_text()[-4000:]
    assert told.read_text().split()[-1] == str(count)


def what_is_wrong(process: subprocess.Popen[bytes], told: Path, most: float) -> str:
    """Waits until a program has ended; says so if nothing went on in it, or if it took too long."""
    begun = seen_at = now = time.monotonic()
    seen: object = None
    while process.poll() is None:
        time.sleep(0.5)
        before, now = now, time.monotonic()
        # Not the program itself: its thread computes, and whoever waits looks around.
        sign = told.stat().st_size, sorted((pid, ticks(pid)) for pid in descendants(process.pid))
        # Nothing counts before everything is imported, nor while this very process was stopped.
        if sign != seen or not told.stat().st_size or now - before > IDLE / 4:
            seen, seen_at = sign, now
        if now - seen_at > IDLE or now - begun > most:
            process.send_signal(signal.SIGALRM)  # every thread says where it is
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            return f"no worker did anything for {IDLE:g} s" if now - begun <= most else f"not done after {most:g} s"
    return ""


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def ticks(pid: int) -> int:
    """The processor time of a process, in the kernel's unit."""
    with suppress(OSError):
        user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return int(user) + int(system)
    return 0
