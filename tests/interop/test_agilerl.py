"""AgileRL trains on fleets as on the vector environments that it makes: the same weights, to the bit."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from coming_from import run_block, scripts_of

import envfleet

with warnings.catch_warnings():  # what it imports besides warns
    warnings.simplefilter("ignore")
    from agilerl.algorithms import DQN, PPO
    from agilerl.components.replay_buffer import ReplayBuffer
    from agilerl.training.train_off_policy import train_off_policy
    from agilerl.training.train_on_policy import train_on_policy
    from agilerl.utils.utils import make_vect_envs

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
BACKENDS = ["sync", "process", "native"]
NUM_ENVS = 4


def theirs() -> Any:
    return make_vect_envs("CartPole-v1", NUM_ENVS, should_async_vector=False, max_episode_steps=20)


def ours(backend: str) -> Any:
    return envfleet.make_vec("CartPole-v1", NUM_ENVS, backend, max_episode_steps=20)


def seeded(envs: Any) -> Any:
    """AgileRL resets without a seed, so environments go on with what they were seeded with before."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(3)
    envs.reset(seed=3)
    return envs


def ppo(envs: Any) -> dict[str, Any]:
    seeded(envs)
    agent = PPO(
        envs.single_observation_space, envs.single_action_space, num_envs=NUM_ENVS, learn_step=64, batch_size=32
    )
    (agent,), _ = train_on_policy(
        envs, "CartPole-v1", "PPO", [agent], max_steps=256, evo_steps=128, eval_steps=10, verbose=False
    )
    envs.close()
    return weights(agent.actor)


def dqn(envs: Any) -> dict[str, Any]:
    seeded(envs)
    agent = DQN(envs.single_observation_space, envs.single_action_space, learn_step=4, batch_size=16)
    (agent,), _ = train_off_policy(
        envs, "CartPole-v1", "DQN", [agent], memory=ReplayBuffer(max_size=500), max_steps=256, evo_steps=128,
        eval_steps=10, learning_delay=32, verbose=False,
    )  # fmt: skip
    envs.close()
    return weights(agent.actor)


def weights(network: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


@pytest.mark.parametrize("train", [ppo, dqn])
def test_training_ends_with_the_same_weights(train: Any) -> None:
    expected, again = train(theirs()), train(theirs())
    assert all(torch.equal(again[name], value) for name, value in expected.items())
    for backend in BACKENDS:
        found = train(ours(backend))
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(found[name], value), f"{name} on {backend}"


def test_they_are_what_it_says_it_takes() -> None:
    with ours("native") as envs:
        assert isinstance(envs, gymnasium.vector.VectorEnv)


@pytest.mark.parametrize("block", scripts_of("agilerl"))
def test_python_blocks_run(block: str, tmp_path: Path) -> None:
    run_block(block, tmp_path, may_warn=True, seconds=200)
