"""The pages of docs/coming_from, and how their Python blocks are run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "coming_from"


def blocks_of(page: str) -> list[Any]:
    """The Python blocks of the page of this name, as parameters of a test."""
    blocks = re.findall(r"```python\n(.*?)```", (FOLDER / f"{page}.md").read_text(), re.DOTALL)
    return [pytest.param(block, id=f"{page}-{number}") for number, block in enumerate(blocks)]


def run_block(block: str, folder: Path, seconds: float = 100, *, may_warn: bool = False) -> None:
    """Runs a block as a reader would: saved as a script, run by Python; a warning would be seen on stderr.

    Args:
        block: The script.
        folder: Where it is saved and run.
        seconds: How long it may take.
        may_warn: Whether anything may be on stderr: some libraries log there, or have all warnings shown.
    """
    script = folder / "block.py"
    script.write_text(block)
    command = [sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert may_warn or not done.stderr
