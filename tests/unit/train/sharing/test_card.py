"""`write_card`: the metadata block is what hubs read, and every number is the run folder's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from synthetic_runs import make_metrics, make_run
from test_report import EVALUATION, evaluated, late_returns

from envfleet.cli import main
from envfleet.train import write_card


def parts(path: Path) -> tuple[Any, str]:
    _, block, text = path.read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(block), text


def test_metadata_and_numbers(tmp_path: Path) -> None:
    run = evaluated(make_run(tmp_path / "run", total_steps=100_000))
    (run / "showcase.png").write_bytes(b"")
    metadata, text = parts(write_card(run))
    assert metadata["library_name"] == "envfleet"
    assert {"LunarLander-v3", "a2c", "deep-reinforcement-learning"} <= {*metadata["tags"]}
    (model,) = metadata["model-index"]
    (result,) = model["results"]
    assert model["name"] == "A2C on LunarLander-v3"
    assert result["dataset"] == {"name": "LunarLander-v3", "type": "LunarLander-v3"}
    assert result["metrics"] == [
        {"type": "mean_reward", "value": "243.25 +/- 20.00", "name": "mean_reward", "verified": False}
    ]
    assert "| after the training | 243.2 | 235.8 to 250.8 | 20.0 | 101.5 | 290.5 | 30 |" in text
    assert "50,000 of 100,000 planned environment steps" in text
    assert f"last tenth of the training: {late_returns(run):.1f} on average" in text
    assert "![The best of its filmed episodes](showcase.png)" in text


def test_a_run_that_was_not_evaluated_claims_nothing(tmp_path: Path) -> None:
    metadata, text = parts(write_card(make_run(tmp_path / "run"), tmp_path / "elsewhere" / "card.md"))
    assert "model-index" not in metadata
    assert "It was not evaluated." in text
    assert "![" not in text


def test_names_are_nothing_but_text(tmp_path: Path) -> None:
    evil = 'x"\n- evil: [yes]\n---\n<script>alert(1)</script> [a](javascript:b) | `c`'
    run = evaluated(make_run(tmp_path / "run", env_id=evil))
    row = {"parameter": evil, "value": 1, **EVALUATION}
    (run / "scenarios.json").write_text(json.dumps({"scenarios": [row]}))
    lines = write_card(run).read_text().splitlines()
    end = lines.index("---", 1)
    metadata = yaml.safe_load("\n".join(lines[1:end]))
    assert metadata["tags"][0] == evil
    text = "\n".join(lines[end + 1 :]).split("```json")[0]
    assert "<script" not in text
    assert "[a](" not in text


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    assert main(["card", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'README.md'}\n"
    assert main(["card", str(make_metrics(tmp_path / "none", step=[1], episode_return=[1]))]) == 1
    assert "is not the folder of a run" in capsys.readouterr().err
