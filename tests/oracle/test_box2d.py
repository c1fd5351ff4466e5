"""Lander and walker in C++ against Gymnasium's: equal to the last bit, through landings, falls and resets."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from oracle import Case, Pilot, compare, in_modes_by_turns

from envfleet import make_vec, uniform
from envfleet.testing import assert_same

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("box2d")]

CASES = [
    Case("LunarLander-v3"),
    Case("LunarLander-v3", {"enable_wind": True, "max_episode_steps": 60}),
    Case("LunarLander-v3", {"gravity": -3.7, "enable_wind": True, "wind_power": 19.0, "turbulence_power": 0.4}),
    Case("LunarLanderContinuous-v3"),
    Case("LunarLander-v3", {"continuous": True, "gravity": -11, "enable_wind": True, "turbulence_power": 2}),
    Case("BipedalWalker-v3"),
    Case("BipedalWalker-v3", {"max_episode_steps": 80}),
    Case("BipedalWalkerHardcore-v3"),
]


def lander_pilot() -> Pilot:
    from gymnasium.envs.box2d.lunar_lander import heuristic

    return lambda env, observation: _as_action(env, heuristic(env, observation))


def walker_pilot() -> Pilot:
    from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics

    walker = BipedalWalkerHeuristics()
    return lambda env, observation: _as_action(env, walker.step_heuristic(observation))


def _as_action(env: gym.Env[Any, Any], action: Any) -> Any:
    return np.asarray(action, env.action_space.dtype)


@in_modes_by_turns(CASES)
def test_every_number_is_gymnasiums(case: Case, mode: AutoresetMode) -> None:
    compare(case, mode)


@pytest.mark.parametrize(
    ("case", "pilot"),
    [
        (Case("LunarLander-v3", {}, 8, 1200, ends=4), lander_pilot),
        (Case("LunarLanderContinuous-v3", {"enable_wind": True, "wind_power": 3.0}, 8, 1200, ends=4), lander_pilot),
        (Case("BipedalWalker-v3", {}, 4, 1700, ends=4), walker_pilot),
        (Case("BipedalWalkerHardcore-v3", {}, 4, 1000, ends=4), walker_pilot),
    ],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_those_who_can_land_and_walk_get_gymnasiums_numbers_too(case: Case, pilot: Any) -> None:
    compare(case, AutoresetMode.NEXT_STEP, 100, pilot)


def test_landers_that_differ_in_their_parameters_are_gymnasiums() -> None:
    randomize = {"gravity": uniform(-11, -2), "wind_power": uniform(0, 20), "turbulence_power": uniform(0, 2)}
    kwargs: Any = {"randomize": randomize, "randomize_seed": 3, "enable_wind": True}
    with (
        make_vec("LunarLander-v3", 8, "native", **kwargs) as ours,
        make_vec("LunarLander-v3", 8, "sync", **kwargs) as theirs,
    ):
        assert_same(ours.reset(seed=5), theirs.reset(seed=5))
        theirs.action_space.seed(5)
        for _ in range(300):
            actions = theirs.action_space.sample()
            assert_same(ours.step(actions), theirs.step(actions))
