"""What a release is made of: the files that must agree do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "release"))

import building  # noqa: E402
import matrix  # noqa: E402

PROJECT = (ROOT / "pyproject.toml").read_text()
VERSION = re.search(r'^version = "(.*)"$', PROJECT, re.MULTILINE)[1]  # type: ignore[index]
DEPENDENCIES = re.search(r"^dependencies = \[(.*)\]$", PROJECT, re.MULTILINE)[1]  # type: ignore[index]
OLDEST = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', DEPENDENCIES))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("file", ["CITATION.cff", "release/conda/recipe.yaml"])
def test_the_version_is_everywhere_the_same(file: str) -> None:
    assert f"version: {VERSION}\n" in (ROOT / file).read_text()


def test_conda_asks_for_what_pip_does() -> None:
    run = (ROOT / "release/conda/recipe.yaml").read_text().partition("  run:\n")[2].partition("\n\n")[0]
    assert {f"{name} >={version}" for name, version in OLDEST.items()} <= set(re.findall(r"- (.*)", run))


def test_wheels_are_built_with_what_the_project_asks_for() -> None:
    asked = re.search(r"^requires = \[(.*)\]$", PROJECT, re.MULTILINE)[1]  # type: ignore[index]
    assert set(re.findall(r'"(.*?)"', asked)) - {"pip"} <= set(building.BUILD_REQUIRES)


@pytest.mark.parametrize("package", OLDEST)
def test_the_oldest_version_that_is_claimed_is_tested(package: str) -> None:
    versions = [version for cell in matrix.CELLS for version in cell.versions]
    assert any(version.startswith(f"{package}=={OLDEST[package]}") for version in versions)


def test_the_matrix_has_every_gymnasium() -> None:
    for minor in range(1, 5):
        assert any(f"gymnasium==1.{minor}." in version for cell in matrix.CELLS for version in cell.versions)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_what_the_makefile_has(workflow: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    said = set(re.findall(r"run: make ([\w-]+)", workflow.read_text()))
    assert said
    assert said <= targets
