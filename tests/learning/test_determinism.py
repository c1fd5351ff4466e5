"""Same seed, same run: down to the last bit of the weights, in this process or in others."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_mdps import CHAIN

from envfleet import uniform
from envfleet.train.config import A2CConfig, PPOConfig, TrainConfig
from envfleet.train.folders.weights import load_tensors
from envfleet.train.running.metrics import read_metrics
from envfleet.train.running.run import train

CONFIGS: dict[str, TrainConfig] = {
    "a2c": A2CConfig("CartPole-v1", num_envs=4, backend="sync", rollout_steps=32, total_steps=1280),
    "ppo": PPOConfig(
        "CartPole-v1", num_envs=4, backend="sync", rollout_steps=32, total_steps=1280, epochs=2, minibatch_size=48
    ),
    "continuous": PPOConfig(
        "Pendulum-v1",
        num_envs=3,
        backend="sync",
        rollout_steps=32,
        total_steps=960,
        epochs=2,
        normalize_observations=True,
        randomize={"g": uniform(8, 12)},
    ),
}
EVERY = pytest.mark.parametrize("name", list(CONFIGS))


def outcome(config: TrainConfig, run: Path) -> dict[str, Any]:
    """Rows without times, and all weights."""
    train(config, run_dir=run, progress=False)
    found: dict[str, Any] = read_metrics(run)  # type: ignore[assignment]
    del found["seconds"], found["steps_per_second"]
    for network in ("actor", "critic"):
        tensors, _ = load_tensors(run / f"{network}.safetensors", f"{network} weights")
        found |= {f"{network}/{key}": tensor.numpy() for key, tensor in tensors.items()}
    return found


@EVERY
def test_the_same_seed_gives_the_same_run_on_both_backends(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    first = outcome(config, tmp_path / "first")
    np.testing.assert_equal(outcome(config, tmp_path / "again"), first)
    processes = dataclasses.replace(config, backend="process")
    np.testing.assert_equal(outcome(processes, tmp_path / "processes"), first)


def test_the_seed_is_also_that_of_the_weights_and_the_actions(tmp_path: Path) -> None:
    """The environment knows no chance, so that all the difference is the learner's."""
    config = A2CConfig(CHAIN, num_envs=2, backend="sync", total_steps=64, rollout_steps=16, env_kwargs={"rewards": [1]})
    first, other = (outcome(dataclasses.replace(config, seed=seed), tmp_path / str(seed)) for seed in (0, 1))
    assert not np.array_equal(first["actor/body.layers.0.weight"], other["actor/body.layers.0.weight"])


@EVERY
def test_another_seed_gives_another_run(name: str, tmp_path: Path) -> None:
    first, other = (outcome(dataclasses.replace(CONFIGS[name], seed=seed), tmp_path / str(seed)) for seed in (0, 1))
    weights = [key for key in first if key.endswith("weight")]
    assert len(weights) >= 6
    assert not any(np.array_equal(first[key], other[key]) for key in weights)
    assert not np.array_equal(first["episodes"], other["episodes"]) or name == "continuous"
