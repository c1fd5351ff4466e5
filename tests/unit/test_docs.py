"""What README and docs say is run, and compared with what there is."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import envfleet
import envfleet.wrappers

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


def test_there_are_blocks_to_run():
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block, tmp_path):
    """As a reader would: saved as a script, run by Python; a warning would be seen on stderr."""
    script = tmp_path / "block.py"
    script.write_text(block)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_the_example_has_fifteen_lines_at_most():
    first = BLOCKS[0].values[0]
    assert "make_vec" in first
    assert len(first.strip().splitlines()) <= 15


@pytest.mark.parametrize(("module", "heading"), [(envfleet, "envfleet"), (envfleet.wrappers, "envfleet.wrappers")])
def test_the_api_page_lists_exactly_the_public_names(module, heading):
    page = (ROOT / "docs" / "api.md").read_text()
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert section is not None
    cells = re.findall(r"^\| (`[^|]*) \|", section.group(1), re.MULTILINE)
    assert sorted(name for cell in cells for name in re.findall(r"`(\w+)`", cell)) == list(module.__all__)


def test_the_readmes_figures_are_those_of_the_committed_result():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from readme_table import readme_table
    finally:
        sys.path.pop(0)
    result = json.loads((ROOT / "benchmarks" / "results" / "engine.json").read_text())
    assert readme_table(result) in (ROOT / "README.md").read_text()


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
