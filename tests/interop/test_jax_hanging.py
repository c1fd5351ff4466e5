"""No hang: two hundred fleets of environments with threads, by every start method, restarts included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CREATIONS = {"fork": 80, "default": 40, "forkserver": 40, "spawn": 40}
SHARE = float(os.environ.get("ENVFLEET_HANGING_SHARE", "1"))
"""A smaller number is for a first look."""

FOR_EACH = 90.0
"""Seconds per fleet: several workers import torch and JAX, some of them twice."""


@pytest.mark.timeout(0)  # the program has a watchdog of its own
@pytest.mark.parametrize("context", CREATIONS)
def test_no_fleet_hangs(context: str) -> None:
    count = max(3, round(CREATIONS[context] * SHARE))
    program = Path(__file__).with_name("hanging.py")
    command = [sys.executable, "-W", "error::RuntimeWarning", str(program), context, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FOR_EACH * count, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split()[-1] == str(count)
