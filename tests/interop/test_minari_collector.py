"""What is recorded from a fleet is what Minari's DataCollector records around single environments, to the bit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import envfleet
from envfleet.adapters.minari import record

NUM_ENVS, EPISODES = 3, 7
POLICIES: dict[str, Any] = {
    "CartPole-v1": lambda seen: (seen[..., 2] > 0.03 * np.sin(40 * seen[..., 0])).astype(np.int64),
    "Pendulum-v1": lambda seen: (2 * np.sin(3 * seen[..., :1])).astype(np.float32),
    "LunarLander-v3": lambda seen: (np.abs(seen[..., 0] * 1000).astype(np.int64) + (seen[..., 3] < -0.3) * 2) % 4,
}


@pytest.fixture(autouse=True)
def _datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box2d: None) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))


def by_minari(env_id: str, policy: Any, env: int, episodes: int) -> Any:
    """One environment of the fleet, with the seed that it would get, through Minari's wrapper."""
    collector = minari.DataCollector(gym.make(env_id), record_infos=True)
    for number in range(episodes):
        seed = {"seed": 10 + env} if number == 0 else {"options": {"minari_autoseed": False}}
        observation, _ = collector.reset(**seed)
        over = False
        while not over:
            observation, _, terminated, truncated, _ = collector.step(policy(observation))
            over = terminated or truncated
    with warnings.catch_warnings():  # about all that is not said of it, and of Minari's temporary folder
        warnings.simplefilter("ignore")
        dataset = collector.create_dataset(f"theirs/env{env}-v0")
    collector.close()
    collector._tmp_dir.cleanup()  # which it leaves to the garbage collector, with a warning
    return dataset


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("backend", ["sync", "process", "native"])
@pytest.mark.parametrize("env_id", list(POLICIES))
def test_episodes_and_metadata_are_the_same(env_id: str, backend: str, mode: AutoresetMode) -> None:
    policy = POLICIES[env_id]
    with envfleet.make_vec(env_id, NUM_ENVS, backend, vector_kwargs={"autoreset_mode": mode}) as envs:
        ours = record(envs, policy, EPISODES, "ours/fleet-v0", seed=10, record_infos=True)
    shares = [EPISODES // NUM_ENVS + (env < EPISODES % NUM_ENVS) for env in range(NUM_ENVS)]
    theirs = [by_minari(env_id, policy, env, share) for env, share in enumerate(shares)]
    expected = {}
    for dataset in theirs:
        about = dataset.storage.get_episode_metadata(dataset.episode_indices)
        for episode, metadata in zip(dataset.iterate_episodes(), about, strict=True):
            expected[episode.observations.tobytes()] = episode, metadata
    assert len(expected) == ours.total_episodes == EPISODES
    for episode, metadata in zip(
        ours.iterate_episodes(), ours.storage.get_episode_metadata(ours.episode_indices), strict=True
    ):
        their_episode, their_metadata = expected.pop(episode.observations.tobytes())
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            mine, other = getattr(episode, name), getattr(their_episode, name)
            assert (mine.shape, mine.tobytes()) == (other.shape, other.astype(mine.dtype).tobytes()), name
        assert episode.observations.dtype == their_episode.observations.dtype
        assert episode.actions.dtype == their_episode.actions.dtype
        np.testing.assert_equal(episode.infos or {}, their_episode.infos or {})
        for name in ("total_steps", "rewards_sum", "rewards_min", "seed"):
            assert metadata.get(name) == their_metadata.get(name), name
    assert ours.total_steps == sum(dataset.total_steps for dataset in theirs)
    assert ours.env_spec.to_json() == theirs[0].env_spec.to_json()
    assert ours.observation_space == theirs[0].observation_space
    assert ours.action_space == theirs[0].action_space
