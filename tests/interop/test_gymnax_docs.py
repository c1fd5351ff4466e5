"""The Python blocks of docs/jax.md run where JAX and gymnax are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "jax.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_blocks_run(number: int, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(BLOCKS[number])
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"print\(.*?\)  # (.*)", BLOCKS[number])
    assert done.stdout.splitlines() == said
