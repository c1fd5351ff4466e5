"""What docs/coming_from says is run, and its links lead somewhere."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from coming_from import FOLDER, blocks_of, lines_of, run_block, scripts_of

import envfleet.adapters

sys.path += [str(Path(__file__).parents[1] / "interop"), str(Path(__file__).parents[2] / "benchmarks")]
from harness import gains
from libraries import LIBRARIES

ROOT = FOLDER.parents[1]
PAGES = sorted(FOLDER.glob("*.md"))
RUN_ELSEWHERE = {library.name for library in LIBRARIES}
"""Their blocks are run by `make interop`, where their libraries are."""


@pytest.mark.parametrize(
    "script", [script for page in PAGES if page.stem not in RUN_ELSEWHERE for script in scripts_of(page.stem)]
)
def test_blocks_and_rows_run(script: str, tmp_path: Path) -> None:
    run_block(script, tmp_path)


def test_every_row_of_the_first_page_has_a_line_to_run() -> None:
    for page in PAGES:
        assert page.stem == "README" or lines_of(page.stem)
    assert [len(lines_of(name)) for name in ("gymnasium", "tianshou", "torchrl", "pufferlib")] == [6, 7, 6, 8]


def test_every_page_has_a_row_and_every_adapter_a_page() -> None:
    rows = [line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("| ")][1:]
    linked = [re.search(r"\[\w+\]\((\w+)\.md\) \|$", row) for row in rows]
    names = [found[1] for found in linked if found is not None]
    assert len(names) == len(rows) == len(set(names))
    assert {*names, "README"} == {page.stem for page in PAGES}
    assert set(envfleet.adapters.__all__) <= set(names)


NO_TRAINERS = {"minari"}
"""What they do on a fleet is no race."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "README"], ids=lambda page: page.stem)
def test_pages_have_the_same_form(page: Path) -> None:
    """Their line and ours, what changes, and a measured gain with the command that measures it."""
    text = page.read_text()
    assert text.startswith("# Coming from ")
    assert blocks_of(page.stem), "no Python block says what our line is"
    assert any("envfleet" in block.values[0] for block in blocks_of(page.stem))
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert "What changes" in headings
    if page.stem in NO_TRAINERS:
        return
    assert "How fast" in headings
    speed = text.split("## How fast\n")[1].split("\n## ")[0]
    commands = re.findall(r"`(make \S+|(?:\S*python) benchmarks/[\w/]+\.py)[^`]*`", speed)
    assert commands, "no command gives the figures"
    for command in commands:
        script = command.partition(" ")[2]
        assert (ROOT / script).is_file() or f"\n{script}:" in (ROOT / "Makefile").read_text(), command


@pytest.mark.parametrize("name", envfleet.adapters.__all__)
def test_an_adapter_is_imported_when_it_is_asked_for_or_says_what_to_install(name: str) -> None:
    if name in RUN_ELSEWHERE and name != "rllib":  # which needs no RLlib to be imported
        with pytest.raises(ModuleNotFoundError, match=rf'pip install ("envfleet\[{name}\]"|--no-deps )'):
            getattr(envfleet.adapters, name)
    else:
        assert getattr(envfleet.adapters, name).__name__ == f"envfleet.adapters.{name}"


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_measured_tables_are_those_of_the_committed_results() -> None:
    kept = json.loads(gains.KEPT.read_text())
    assert {page.stem for page in PAGES if gains.BEGIN in page.read_text()} == set(kept)
    for name, entry in kept.items():
        text = (FOLDER / f"{name}.md").read_text()
        assert gains.updated(text, gains.section(entry)) == text, f"{entry['command']} --publish"
        script = entry["command"].partition("benchmarks/")[2].split()[0]
        assert f"benchmarks/{script}" in text, f"{name} does not say what measures it"


def test_a_table_shows_medians_and_ratios_within_turns() -> None:
    speeds = {"theirs": [100.0, 50.0, 200.0], "ours": [300.0, 100.0, 800.0]}
    entry = {
        "fleet": "2 x CartPole-v1",
        "date": "2026-01-02",
        "load_before": [0.25, 0, 0],
        "machine": {"usable_cores": 2, "processor": "a processor"},
        "results": [{"library": "some", "what": "stepping", "baseline": "theirs", "speeds": speeds}],
    }
    section = gains.section(entry)
    assert "| theirs | 100 (1.00) |\n| ours | 300 (3.00) |" in section
    page = gains.updated("# a\n\n## How fast\n\nb\n\n## c\n", section)
    assert page == f"# a\n\n## How fast\n\nb\n\n{section}\n\n## c\n"
    assert gains.updated(page.replace("300", "200"), section) == page
    with pytest.raises(ValueError, match="no place"):
        gains.updated("nothing", section)
