"""Scripts in CleanRL's style end with the same weights on fleets as on Gymnasium's vector environments."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium
import pytest
import torch
from cleanrl_style import ppo
from gymnasium.vector import AutoresetMode

import envfleet
from envfleet.wrappers import RecordEpisodeStatistics

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
NUM_ENVS = 4


def make_env() -> Any:
    return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))


@cache
def theirs(mode: AutoresetMode, without_resets: bool = False) -> tuple[dict[str, Any], list[float]]:
    """As CleanRL makes environments: each with its own statistics."""
    envs = gymnasium.vector.SyncVectorEnv([make_env] * NUM_ENVS, autoreset_mode=mode)
    return ppo(envs, without_resets=without_resets)


def ours(backend: str, mode: AutoresetMode, without_resets: bool = False) -> tuple[dict[str, Any], list[float]]:
    envs = envfleet.make_vec("CartPole-v1", NUM_ENVS, backend, autoreset_mode=mode)
    return ppo(RecordEpisodeStatistics(envs), without_resets=without_resets)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["sync", "process", "native"])
def test_ppo_ends_with_the_same_weights(backend: str, mode: AutoresetMode) -> None:
    weights, returns = ours(backend, mode)
    assert same(weights, theirs(mode)[0])
    assert returns == theirs(mode)[1]
    assert len(returns) > 5


def test_the_modes_differ_and_so_does_the_recipe_without_resets() -> None:
    next_step, same_step = MODES
    assert not same(theirs(next_step)[0], theirs(same_step)[0])
    weights, returns = ours("native", next_step, without_resets=True)
    expected, expected_returns = theirs(next_step, without_resets=True)
    assert same(weights, expected)
    assert returns == expected_returns
    assert not same(weights, theirs(next_step)[0])
