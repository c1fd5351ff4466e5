"""What docs/coming_from says is run, and its links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from coming_from import FOLDER, blocks_of, run_block

import envfleet.adapters

sys.path.append(str(Path(__file__).parents[1] / "interop"))
from libraries import LIBRARIES

PAGES = sorted(FOLDER.glob("*.md"))
RUN_ELSEWHERE = {library.name for library in LIBRARIES}
"""Their blocks are run by `make interop`, where their libraries are."""


@pytest.mark.parametrize(
    "block", [block for page in PAGES if page.stem not in RUN_ELSEWHERE for block in blocks_of(page.stem)]
)
def test_python_blocks_run(block: str, tmp_path: Path) -> None:
    run_block(block, tmp_path)


def test_every_adapter_has_a_page_and_a_row() -> None:
    table = (FOLDER / "README.md").read_text()
    for name in envfleet.adapters.__all__:
        assert f"({name}.md)" in table
    assert {page.stem for page in PAGES} == {"README", *envfleet.adapters.__all__}


def test_an_adapter_is_imported_when_it_is_asked_for_or_says_what_to_install() -> None:
    for name in envfleet.adapters.__all__:
        if name in RUN_ELSEWHERE and importlib.util.find_spec(name) is None:
            with pytest.raises(ModuleNotFoundError, match=re.escape(f'pip install "envfleet[{name}]"')):
                getattr(envfleet.adapters, name)
        else:
            assert getattr(envfleet.adapters, name).__name__ == f"envfleet.adapters.{name}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
