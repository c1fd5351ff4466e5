"""Brax: its own reset and step by hand, and fleets of its environments, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brax import envs as brax_envs
from by_hand import MODES, BraxInterface, assert_fleet_is_by_hand

from envfleet import AutoresetMode, make_vec
from envfleet.device import JaxVectorEnv
from envfleet.train import PPOConfig, evaluate, load_agent, train

# Brax says that others maintain its successor; the message comes once per process, whichever test is first.
pytestmark = pytest.mark.filterwarnings("ignore:Brax System:UserWarning")

N = 6
STEPS = 40
LIMIT = 12


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ["fast", "inverted_pendulum"])
def test_a_fleet_is_brax_by_hand_to_the_bit(name: str, mode: AutoresetMode) -> None:
    arguments: dict[str, Any] = {} if name == "fast" else {"backend": "generalized"}
    env = brax_envs.get_environment(name, **arguments)
    made = {"env_kwargs": {**arguments, "max_episode_steps": LIMIT}}  # make_vec has a `backend` of its own
    with JaxVectorEnv(f"brax:{name}", N, autoreset_mode=mode, **made) as envs:
        assert assert_fleet_is_by_hand(envs, BraxInterface(env), STEPS, LIMIT).min() >= 2


def test_environments_are_taken_as_ids_are() -> None:
    with make_vec(brax_envs.get_environment("fast"), 2) as given, make_vec("brax:fast", 2) as named:
        assert type(given) is JaxVectorEnv
        for envs in (given, named):
            envs.reset(seed=0)
        actions = given.action_space.sample()
        np.testing.assert_array_equal(given.step(actions)[0], named.step(actions)[0])


def test_an_id_that_brax_does_not_have_is_explained() -> None:
    with pytest.raises(ValueError, match="did you mean 'ant'"):
        make_vec("brax:antt", 2)


def test_an_agent_is_trained_and_evaluated(tmp_path: Path) -> None:
    config = PPOConfig("brax:fast", num_envs=8, rollout_steps=8, total_steps=256, hidden_sizes=(8,), eval_every=0)
    result = train(config, run_dir=tmp_path / "run", progress=False, loggers=())
    assert result.step == 256
    judged = evaluate(load_agent(result.run_dir), episodes=2, num_envs=2, seed=1, max_steps=20)
    assert judged.lengths == (20, 20)
    assert judged.cut == 2
