"""Environments that write garbage into the block: the caller survives, and names the worker or goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "garbage.py"


@pytest.mark.parametrize(("context", "seeds"), [("fork", range(12)), ("forkserver", range(40, 42))])
def test_the_caller_survives_whatever_is_written_into_the_block(context: str, seeds: range) -> None:
    command = [sys.executable, PROGRAM, str(seeds.start), str(seeds.stop), context]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "garbage was written into the shared block" in done.stdout
    assert len([line for line in done.stdout.splitlines() if line.startswith("seed ")]) == len(seeds)
