"""Every example runs, in a short form, as a reader would run it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from scripts import run_script

from envfleet.train import evaluate, plot_runs, showcase, train  # noqa: F401  what most of them import

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = {
    "clipped_values": ["--total-steps", "2560"],
    "continuous_control": ["--total-steps", "2560", "--episodes", "2"],
    "curiosity": ["--total-steps", "2560"],
    "custom_network": ["--total-steps", "2560", "--episodes", "2"],
    "domain_randomization": ["--total-steps", "1024", "--episodes", "1", "--num-envs", "8"],
    "first_ready": ["--steps", "160"],
    "images": ["--total-steps", "1024", "--episodes", "3"],
    "lunar_lander": ["--total-steps", "1280", "--episodes", "2"],
    "memory": ["--total-steps", "400", "--episodes", "2"],
    "own_algorithm": ["--updates", "3"],
    "own_environment": [],
    "several_machines": ["--num-envs", "4", "--num-workers", "2", "--steps", "20"],
    "shared_trunk": ["--total-steps", "2560"],
}
NAMES = [pytest.param(name, marks=[pytest.mark.ray] if name == "several_machines" else []) for name in SHORT]
MADE = {
    "continuous_control": ["curves.png"],
    "domain_randomization": ["scenarios.png", "scenarios.png"],
    "images": ["showcase.mp4"],
    "lunar_lander": ["curves.png", "showcase.mp4"],
}
"""Files that an example says it makes."""


def test_every_example_is_run() -> None:
    assert sorted(SHORT) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name: str, tmp_path: Path) -> None:
    code, _, errors = run_script(EXAMPLES / f"{name}.py", SHORT[name], tmp_path, anew=name == "several_machines")
    assert code == 0, errors
    assert not errors
    found = sorted(path.name for pattern in set(MADE.get(name, [])) for path in tmp_path.rglob(pattern))
    assert found == sorted(MADE.get(name, []))


MOST_LINES = {"own_environment": 40}
"""Where the docs promise fewer than 60."""


@pytest.mark.parametrize("name", SHORT)
def test_it_is_short_and_says_what_it_is(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= MOST_LINES.get(name, 60)
    assert ast.get_docstring(ast.parse(text))


def test_the_readme_lists_them_all() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert [name for name in SHORT if f"[{name}.py]({name}.py)" not in text] == []
