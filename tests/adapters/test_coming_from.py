"""What docs/coming_from says is run, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import envfleet.adapters

FOLDER = Path(__file__).parents[2] / "docs" / "coming_from"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block: str, tmp_path: Path) -> None:
    """As a reader would: saved as a script, run by Python; a warning would be seen on stderr."""
    script = tmp_path / "block.py"
    script.write_text(block)
    command = [sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_every_adapter_has_a_page_and_a_row() -> None:
    table = (FOLDER / "README.md").read_text()
    for name in envfleet.adapters.__all__:
        assert getattr(envfleet.adapters, name).__name__ == f"envfleet.adapters.{name}"
        assert f"({name}.md)" in table
    assert {page.stem for page in PAGES} == {"README", *envfleet.adapters.__all__}


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
