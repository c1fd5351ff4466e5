"""Runs whose updates compiled code computes: which say so, change over in the middle, and learn as torch's do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import CONFIGS, EVERY, ROLLOUT, outcome, stop_at

from envfleet.train import PPOConfig, preset, resume, train
from envfleet.train.algorithms.registry import config_from_dict
from envfleet.train.config import config_to_dict

HALF, LATER = 10 * ROLLOUT, 15 * ROLLOUT


def tell(run: Path, learner: str | None) -> None:
    """Have a run that was stopped go on with another learner; None as if there had been no such setting."""
    path = run / "config.json"
    content = json.loads(path.read_text())
    del content["config"]["learner"]
    if learner is not None:
        content["config"]["learner"] = learner
    path.write_text(json.dumps(content))


@EVERY
def test_a_run_may_change_over_and_back(algo: str, tmp_path: Path) -> None:
    config = replace(CONFIGS[algo], normalize_observations=True, learner="torch")
    train(config, run_dir=tmp_path / "torch", reporter=None)
    run = tmp_path / "both"
    train(config, run_dir=run, reporter=None, callback=stop_at([HALF]))
    tell(run, "compiled")
    resume(run, reporter=None, callback=stop_at([LATER]))
    tell(run, "torch")
    assert resume(run, reporter=None).finished
    ours, theirs = outcome(run)["tensors"], outcome(tmp_path / "torch")["tensors"]
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        if "optimizer" in name and name.endswith("step"):
            assert np.array_equal(ours[name], tensor), name
        elif name.startswith(("actor", "critic")):
            assert np.allclose(ours[name], tensor, rtol=1e-3, atol=1e-4), name


@EVERY
def test_a_resumed_compiled_run_is_the_run_that_was_not_stopped(algo: str, tmp_path: Path) -> None:
    config = replace(CONFIGS[algo], normalize_observations=True, learner="compiled")
    train(config, run_dir=tmp_path / "whole", reporter=None)
    train(config, run_dir=tmp_path / "stopped", reporter=None, callback=stop_at([HALF]))
    resume(tmp_path / "stopped", reporter=None)
    np.testing.assert_equal(outcome(tmp_path / "stopped"), outcome(tmp_path / "whole"))


@EVERY
def test_a_run_from_before_there_was_a_choice_goes_on_with_torch(
    algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(replace(CONFIGS[algo], learner="torch"), run_dir=tmp_path, reporter=None, callback=stop_at([HALF]))
    tell(tmp_path, None)
    resume(tmp_path)
    assert "learner: torch: as told" in capsys.readouterr().out


@EVERY
def test_a_saved_configuration_without_the_setting_means_torch(algo: str) -> None:
    plain = config_to_dict(CONFIGS[algo])
    del plain["learner"]
    assert config_from_dict(algo, plain).learner == "torch"


@EVERY
def test_the_heading_says_what_computes_the_updates(
    algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(CONFIGS[algo], run_dir=tmp_path, callback=lambda _: False)
    assert "learner: compiled code (" in capsys.readouterr().out


def test_what_is_no_learner_is_refused() -> None:
    with pytest.raises(ValueError, match="learner must be auto, torch or compiled, got 'numpy'"):
        PPOConfig("CartPole-v1", learner="numpy")  # type: ignore[arg-type]


def test_compiled_code_is_refused_with_a_reason(tmp_path: Path) -> None:
    config = replace(CONFIGS["a2c"], env_kwargs={"observations": "discrete"}, learner="compiled")
    with pytest.raises(ValueError, match="learner='compiled' is not possible: observations are no vectors of numbers"):
        train(config, run_dir=tmp_path, reporter=None)


@pytest.mark.parametrize("learner", ["torch", "compiled"])
def test_cart_pole_is_learnt_either_way(learner: Any, tmp_path: Path) -> None:
    config = replace(preset("CartPole-v1", "ppo"), total_steps=30_000, learner=learner)
    result = train(config, run_dir=tmp_path, reporter=None)
    assert result.mean_return is not None
    assert result.mean_return > 120


def test_numbers_of_a_run_are_those_it_learns_from(tmp_path: Path) -> None:
    """Both ways act alike: until the first update they are the same to the last bit."""
    seen = {}
    for learner in ("torch", "compiled"):
        config = replace(CONFIGS["ppo"], learner=learner, total_steps=ROLLOUT)
        train(config, run_dir=tmp_path / learner, reporter=None)
        seen[learner] = outcome(tmp_path / learner)["tensors"]["checkpoint/latest: journal"]
    assert np.array_equal(seen["torch"], seen["compiled"])
