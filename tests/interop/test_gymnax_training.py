"""PPO on environments written in JAX, through the same run as any other."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from envfleet.train import load_agent, preset, resume, train
from envfleet.train.config import TrainConfig

ENV = "gymnax:CartPole-v1"
TIMES = ("seconds", "steps_per_second")


def _small(**changes: Any) -> TrainConfig:
    small = {"num_envs": 128, "total_steps": 16_384, "minibatch_size": 256, "eval_every": 0, **changes}
    return dataclasses.replace(preset(ENV, "ppo"), **small)


def _rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as file:
        return [{key: value for key, value in row.items() if key not in TIMES} for row in csv.DictReader(file)]


def test_the_same_seed_gives_the_same_curve_and_resuming_goes_on_exactly(tmp_path: Path) -> None:
    whole, again, stopped = tmp_path / "whole", tmp_path / "again", tmp_path / "stopped"
    train(_small(), run_dir=whole, progress=False, loggers=())
    train(_small(), run_dir=again, progress=False, loggers=())
    train(_small(), run_dir=stopped, progress=False, loggers=(), callback=lambda now: now.row["step"] < 6_000)
    assert _rows(whole) == _rows(again)
    assert _rows(stopped) == _rows(whole)[: len(_rows(stopped))] != _rows(whole)
    resume(stopped, progress=False, loggers=())
    assert _rows(stopped) == _rows(whole)
    for name in ("actor.safetensors", "critic.safetensors"):
        mine, theirs = load_file(stopped / name), load_file(whole / name)
        assert mine.keys() == theirs.keys()
        for key, weights in mine.items():
            np.testing.assert_array_equal(weights, theirs[key])


def test_it_learns_and_its_agent_is_one_as_any_other(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train(_small(total_steps=65_536), run_dir=run, progress=False, loggers=())
    assert result.mean_return is not None
    assert result.mean_return > 60  # of 20 at the beginning
    agent = load_agent(run)
    observations = np.zeros((3, 4), np.float32)
    np.testing.assert_array_equal(agent.act(observations), result.agent.act(observations))
