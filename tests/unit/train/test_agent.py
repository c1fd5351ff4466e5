from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from tiny_envs import ACTION_SPACES, OBSERVATION_SPACES

from envfleet.train.agent import Agent
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.registry import make_learner
from envfleet.train.config import A2CConfig, PPOConfig, SACConfig, TrainConfig

CPU = torch.device("cpu")


def make(observations: str = "vector", actions: str = "discrete", config: TrainConfig | None = None) -> Agent:
    task = Task(OBSERVATION_SPACES[observations], ACTION_SPACES[actions], 2, CPU)
    config = config or A2CConfig("unused", normalize_observations=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        learner = make_learner(config, task)
    return Agent(config, learner.actor, task.observation_space, task.action_space, CPU)


def sample(name: str, batch: int = 6) -> Any:
    space = batch_space(OBSERVATION_SPACES[name], batch)
    space.seed(0)
    return space.sample()


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("actions", list(ACTION_SPACES))
@pytest.mark.parametrize("observations", ["vector", "dict"])
def test_actions_are_the_environment_s(observations: str, actions: str, deterministic: bool) -> None:
    batch = make(observations, actions).act(sample(observations), deterministic)
    space = ACTION_SPACES[actions]
    assert batch.dtype == space.dtype
    assert len(batch) == 6
    assert all(space.contains(np.asarray(action, space.dtype)) for action in batch)


@pytest.mark.parametrize("observations", list(OBSERVATION_SPACES))
def test_observations_may_be_of_any_space_we_know(observations: str) -> None:
    assert make(observations).act(sample(observations)).shape == (6,)


@pytest.mark.parametrize("config", [PPOConfig("unused"), SACConfig("unused")], ids=["ppo", "sac"])
def test_units_of_the_policy_become_the_environment_s(config: TrainConfig) -> None:
    agent = make("vector", "box", config)
    observations = sample("vector", 500)
    with torch.no_grad():
        for parameter in agent.actor.parameters():
            parameter.mul_(5)
        units = agent.actor.distribution.mode(agent.actor(torch.from_numpy(observations))).numpy()
    # The bounds are -2 and 3.
    np.testing.assert_allclose(agent.act(observations), 0.5 + 2.5 * np.clip(units, -1, 1), rtol=1e-5, atol=1e-6)


def test_the_same_observations_get_the_same_actions_unless_drawn() -> None:
    agent, observations = make(), sample("vector", 200)
    first = agent.act(observations)
    state = {name: tensor.clone() for name, tensor in agent.actor.state_dict().items()}
    drawn = [agent.act(observations * 3, deterministic=False) for _ in range(10)]
    assert any(not np.array_equal(drawn[0], other) for other in drawn)
    np.testing.assert_array_equal(agent.act(observations), first)
    torch.testing.assert_close(dict(agent.actor.state_dict()), state, rtol=0, atol=0)


def test_acting_the_likeliest_draws_no_random_number() -> None:
    agent = make()
    before = torch.get_rng_state()
    agent.act(sample("vector"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["read-only", "turned", "every other", "another dtype"])
def test_arrays_of_any_layout_will_do(name: str) -> None:
    agent, observations = make(), sample("vector")
    frozen = observations.copy()
    frozen.flags.writeable = False
    layouts = {
        "read-only": frozen,
        "turned": observations[::-1].copy()[::-1],
        "every other": np.repeat(observations, 2, 0)[::2],
        "another dtype": observations.astype(np.float64),
    }
    np.testing.assert_array_equal(agent.act(layouts[name]), agent.act(observations))


@pytest.mark.parametrize(
    ("observations", "error", "message"),
    [
        (np.zeros(3, np.float32), ValueError, r"got \(3,\); for a single observation give observation\[None\]"),
        (np.zeros((2, 4), np.float32), ValueError, r"must have the shape \(batch, \*\(3,\)\), got \(2, 4\)"),
        (np.zeros((2, 2, 3), np.float32), ValueError, r"got \(2, 2, 3\)"),
        ([[0.0, 0.0, 0.0]], TypeError, "must be a NumPy array .* got list"),
        ({"a": np.zeros(3)}, TypeError, "must be a NumPy array .* got dict"),
    ],
)
def test_other_observations_are_refused(observations: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make().act(observations)


def test_dicts_are_checked_entry_by_entry() -> None:
    agent, observations = make("dict"), sample("dict")
    with pytest.raises(ValueError, match=r"must be a dict with the keys \['inner', 'what.is/this'\], got \['inner'\]"):
        agent.act({"inner": observations["inner"]})
    with pytest.raises(ValueError, match=r"must be a dict with the keys .* got ndarray"):
        agent.act(np.zeros((2, 3)))
    wrong = {**observations, "inner": {**observations["inner"], "b": np.zeros((6, 3), np.float32)}}
    with pytest.raises(ValueError, match=r"observations\['inner'\]\['b'\] must have the shape"):
        agent.act(wrong)


def test_it_says_what_it_is_for() -> None:
    agent = make("dict", "box")
    assert isinstance(agent.observation_space, spaces.Dict)
    assert agent.action_space == ACTION_SPACES["box"]
    assert agent.config.algo == "a2c"
