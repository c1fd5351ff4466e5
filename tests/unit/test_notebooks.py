"""Tutorials and the notebooks made from them: they agree, they run, and they show figures."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_kernels import ForkedKernels
from selection import ALL_TESTS, left_to_test_all

pytest.importorskip("nbclient")

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = sorted(path for path in TUTORIALS.glob("*.md") if path.stem != "index")
STEPS = {"making", "randomising", "actor_and_critic", "collecting", "advantages", "training_and_curves", "saving"}
STEPS |= {"showcasing", "your_environment", "your_algorithm", "slow_to_compiled", "surviving", "cluster"}


@pytest.fixture(scope="module")
def notebooks() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT / "website"))
    try:
        yield importlib.import_module("notebooks")
    finally:
        sys.path.pop(0)


def test_the_tutorials_are_there() -> None:
    assert {page.stem for page in PAGES} == STEPS
    index = (TUTORIALS / "index.md").read_text()
    assert set(re.findall(r"\]\((\w+)\.md\)", index)) == STEPS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_notebook_has_the_cells_of_its_page_and_shows_figures(page: Path, notebooks: Any) -> None:
    assert f"[a notebook]({page.stem}.ipynb)" in page.read_text()
    assert notebooks.is_current(page), "run make notebooks"
    cells = json.loads(page.with_suffix(".ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert "".join("".join(cell["source"]) + "\n" for cell in code) == "".join(
        re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    )
    check_outputs([output for cell in code for output in cell["outputs"]])


def check_outputs(outputs: list[Any]) -> None:
    """Pictures or films inline, and nothing on standard error."""
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    kinds = [output.get("data", {}) for output in outputs]
    assert any("image/png" in data or "<video" in "".join(data.get("text/html", "")) for data in kinds)


RUN = [pytest.param(page, id=page.stem, marks=[pytest.mark.ray] if page.stem == "cluster" else []) for page in PAGES]


LONG = {"showcasing", "your_environment"}
"""They take the longest, and train, evaluate and film as docs/own_environment.md does."""


@pytest.fixture(scope="module")
def kernels() -> Iterator[ForkedKernels]:
    """Most of the time of a notebook is that of importing torch, which is done once for all of them."""
    made = ForkedKernels()
    yield made
    made.close()


@left_to_test_all(lambda given: given["page"].stem in LONG)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", RUN)
def test_a_notebook_runs(
    page: Path, notebooks: Any, kernels: ForkedKernels, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From its page, anew, in an empty folder. `make test-all` starts each kernel as jupyter_client does."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    if ALL_TESTS not in os.environ and request.node.get_closest_marker("ray") is None:
        monkeypatch.setattr("jupyter_client.provisioning.local_provisioner.launch_kernel", kernels.launch)
    notebook = notebooks.made(notebooks.cells_of(page.read_text()), page.stem)
    notebooks.run(notebook)
    check_outputs([output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs])


def test_cells_are_text_and_code_by_turns(notebooks: Any) -> None:
    page = "# Top\n\nThis page is also [a notebook](x.ipynb).\n\nText.\n\n"
    page += "```python\nx = 1\n\ny = 2\n```\n\n```sh\nls\n```\n"
    assert notebooks.cells_of(page) == [
        notebooks.Cell("markdown", "# Top\n\nText."),
        notebooks.Cell("code", "x = 1\n\ny = 2"),
        notebooks.Cell("markdown", "```sh\nls\n```"),
    ]
    assert notebooks.cells_in(notebooks.made(notebooks.cells_of(page), "x")) == notebooks.cells_of(page)


def test_a_page_that_has_changed_is_noticed(notebooks: Any, tmp_path: Path) -> None:
    for name in ("making.md", "making.ipynb"):
        (tmp_path / name).write_text((TUTORIALS / name).read_text())
    page = tmp_path / "making.md"
    assert notebooks.is_current(page)
    page.write_text(page.read_text().replace("num_envs=4", "num_envs=5", 1))
    assert not notebooks.is_current(page)


def test_texts_that_follow_one_another_are_one(notebooks: Any) -> None:
    def text(name: str, content: str) -> dict[str, str]:
        return {"output_type": "stream", "name": name, "text": content}

    picture = {"output_type": "display_data", "data": {}}
    outputs = [text("stdout", "a"), text("stdout", "b"), picture, text("stdout", "c"), text("stderr", "d")]
    assert list(notebooks.joined(outputs)) == [text("stdout", "ab"), picture, text("stdout", "c"), text("stderr", "d")]
