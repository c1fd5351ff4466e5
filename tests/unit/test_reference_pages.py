"""Pages of the site that are made from the package: every command, every field of every configuration, all agents."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envfleet.cli.app import _COMMANDS
from envfleet.train import TrainConfig
from envfleet.train.algorithms.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _website() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "website"))
    yield
    sys.path.pop(0)


def section_of(page: str, heading: str, level: str = "## ") -> str:
    found = re.search(rf"^{level}{re.escape(heading)}\n(.*?)(?=^{level}|\Z)", page, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[1]


def test_every_command_is_there_with_what_its_help_says() -> None:
    page = importlib.import_module("commands_page").page()
    for name in _COMMANDS:
        section = section_of(page, f"envfleet {name}")
        assert "usage: envfleet" in section
        assert _COMMANDS[name].example in section
    for algo, entry in ALGORITHMS.items():
        help_text = section_of(page, f"envfleet train --algo {algo}", "### ")
        options = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(entry.config)]
        hidden = {"--env-id", "--vector-kwargs"}
        assert [name for name in options if name not in help_text and name not in hidden] == []
    assert "\x1b" not in page
    text = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(text) >= len(_COMMANDS) + len(ALGORITHMS) - 1


def test_a_terminal_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "usage" in importlib.import_module("commands_page").help_text(["plot"])
    import os

    assert os.environ["COLUMNS"] == "77"
    assert "NO_COLOR" not in os.environ


def test_every_field_of_every_configuration_is_there_with_type_default_and_meaning() -> None:
    module = importlib.import_module("configuration_page")
    page = module.page()
    configs: list[type[Any]] = [TrainConfig, *(entry.config for entry in ALGORITHMS.values())]
    assert set(configs) <= set(module.CONFIGS)
    for config in module.CONFIGS:
        rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| (.+?) \| (.{10,}) \|$", section_of(page, config.__name__), re.M)
        assert [name for name, *_ in rows] == [field.name for field in module.own_fields(config)]
        listed = {name for parent in config.__mro__ if parent in module.CONFIGS for name in _names(module, parent)}
        assert listed == {field.name for field in dataclasses.fields(config)}


def _names(module: Any, config: type[Any]) -> list[str]:
    return [field.name for field in module.own_fields(config)]


def test_the_gallery_has_every_agent_that_is_there() -> None:
    page = importlib.import_module("gallery").page()
    for path in (ROOT / "benchmarks" / "learning" / "agents").glob("*/agent.json"):
        facts = json.loads(path.read_text())
        section = section_of(page, facts["evaluation"]["env_id"])
        assert facts["command"] in section
        assert f"{facts['evaluation']['mean_return']:.1f}" in section
        assert f"../benchmarks/learning/agents/{path.parent.name}/film.mp4" in section
