"""Acting on whichever environments are ready gives each of them the same transitions as acting on all at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from envfleet import make_vec
from envfleet.train import A2CConfig, DQNConfig, PPOConfig, SACConfig, TD3Config, resume, train
from envfleet.train.algorithms.replay import ReplayBuffer
from envfleet.train.collecting import Rollout, begin, collect
from envfleet.train.first_ready import FirstReady
from envfleet.train.observations import Observations

NUM_ENVS = 5
BACKENDS: dict[str, dict[str, Any]] = {"sync": {}, "process": {"num_workers": 2}}


@contextmanager
def cart_poles(backend: str, batch_size: int | None = None) -> Iterator[Any]:
    chosen = {} if batch_size is None else {"batch_size": batch_size}
    kwargs = {"autoreset_mode": AutoresetMode.SAME_STEP, "copy": False, **BACKENDS[backend], **chosen}
    with make_vec("CartPole-v1", NUM_ENVS, backend, vector_kwargs=kwargs) as envs:
        yield envs


def lean(observations: Observations) -> np.ndarray:
    """Push the cart to where the pole falls: it depends on the observation alone, and episodes end now and then."""
    assert isinstance(observations, np.ndarray)
    return (observations[:, 2] + 0.5 * observations[:, 0] > 0).astype(np.int64)


def lean_of(observations: Observations, env_ids: np.ndarray) -> np.ndarray:
    """The same, for those that are ready."""
    assert len(observations) == len(env_ids)
    return lean(observations)


def assert_equal(found: Rollout, expected: Rollout) -> None:
    for name in ("observations", "actions", "rewards", "terminated", "truncated", "valid", "final_observations"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(found.end.observations, expected.end.observations)
    assert found.fresh == expected.fresh


@pytest.mark.parametrize("batch_size", [1, 2, 4])
@pytest.mark.parametrize("backend", BACKENDS)
def test_as_many_steps_of_all_are_what_collect_gives(backend: str, batch_size: int) -> None:
    with cart_poles("sync") as envs:
        position, expected = begin(envs, seed=7), []
        for steps in (40, 25):
            expected.append(collect(envs, lean, steps, position))
            position = expected[-1].end
    assert any(rollout.done.any() for rollout in expected), "an episode must end for this to say anything"
    with cart_poles(backend, batch_size) as envs:
        first_ready = FirstReady(envs)
        first_ready.begin(7)
        for rollout, steps in zip(expected, (40, 25), strict=True):
            assert_equal(first_ready.steps_of_all(lean_of, steps), rollout)


@pytest.mark.parametrize("backend", BACKENDS)
def test_first_results_lose_and_invent_no_transition(backend: str) -> None:
    with cart_poles("sync") as envs:
        expected = collect(envs, lean, 60, begin(envs, seed=7))
    seen: list[list[tuple[Any, ...]]] = [[] for _ in range(NUM_ENVS)]
    with cart_poles(backend, 2) as envs:
        first_ready = FirstReady(envs)
        first_ready.begin(7)
        while min(map(len, seen)) < 60:
            rollout = first_ready.first_results(lean_of)
            assert rollout.transitions == 2
            assert rollout.fresh == (not any(seen))
            for env in np.flatnonzero(rollout.valid[0]).tolist():
                before, columns = rollout.observations[0, env], (rollout.actions, rollout.rewards, rollout.terminated)
                seen[env].append((before.tolist(), *(column[0, env].item() for column in columns)))
    for env in range(NUM_ENVS):
        columns = (expected.actions, expected.rewards, expected.terminated)
        wanted = [
            (expected.observations[step, env].tolist(), *(column[step, env].item() for column in columns))
            for step in range(60)
        ]
        assert seen[env][:60] == wanted


def test_the_replay_buffer_knows_what_followed_although_results_come_one_by_one() -> None:
    with cart_poles("sync", 2) as envs:
        first_ready = FirstReady(envs)
        first_ready.begin(7)
        buffer = ReplayBuffer(envs.single_observation_space, 1, NUM_ENVS, 1000, seed=0)
        for _ in range(100):
            buffer.add(first_ready.first_results(lean_of))
    drawn = buffer.sample(500, torch.device("cpu"))
    single = gym.make("CartPole-v1").unwrapped
    single.reset(seed=0)
    for row in range(len(drawn.rewards)):
        single.state = drawn.observations[row].double().numpy()  # type: ignore[attr-defined]
        single.steps_beyond_terminated = None  # type: ignore[attr-defined]
        after = single.step(int(drawn.actions[row, 0]))[0]
        np.testing.assert_allclose(drawn.next_observations[row], after, atol=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        A2CConfig("CartPole-v1", num_envs=4, first_ready=2, rollout_steps=8, total_steps=320, backend="process"),
        PPOConfig("CartPole-v1", num_envs=4, first_ready=3, rollout_steps=8, total_steps=320, backend="sync"),
        SACConfig("Pendulum-v1", num_envs=4, first_ready=1, learning_starts=64, batch_size=8, total_steps=320),
        TD3Config("Pendulum-v1", num_envs=4, first_ready=1, learning_starts=64, batch_size=8, total_steps=320),
        DQNConfig("CartPole-v1", num_envs=4, first_ready=1, learning_starts=64, batch_size=8, total_steps=320),
        DQNConfig("CartPole-v1", num_envs=4, first_ready=1, learning_starts=64, total_steps=320, priority_exponent=0.5),
    ],
    ids=["a2c", "ppo", "sac", "td3", "dqn", "dqn with priorities"],
)
def test_training_takes_every_step_it_was_told_and_goes_on_after_a_stop(config: Any, tmp_path: Path) -> None:
    halfway = train(config, run_dir=tmp_path / "run", callback=lambda progress: progress.step < 160)
    assert 160 <= halfway.step < 320
    finished = resume(tmp_path / "run")
    assert finished.finished
    assert finished.step == 320


def test_a_number_that_is_not_less_than_all_is_refused() -> None:
    with pytest.raises(ValueError, match="first_ready must be less than num_envs=10, got 10"):
        replace(PPOConfig("CartPole-v1"), first_ready=10)
