"""MuJoCo Playground: its own reset and step by hand, and fleets of its environments, to the bit.

Only environments of its dm_control suite: those of robots download models when they are made.
"""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import MODES, BraxInterface, assert_fleet_is_by_hand
from mujoco_playground import registry

from envfleet import AutoresetMode, make_vec
from envfleet.device import JaxVectorEnv

N = 4
STEPS = 25
LIMIT = 9


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ["CartpoleBalance", "PendulumSwingup"])
def test_a_fleet_is_playground_by_hand_to_the_bit(name: str, mode: AutoresetMode) -> None:
    env = registry.load(name, config_overrides={"impl": "jax"})
    with make_vec(f"playground:{name}", N, autoreset_mode=mode, max_episode_steps=LIMIT) as envs:
        assert type(envs) is JaxVectorEnv
        assert assert_fleet_is_by_hand(envs, BraxInterface(env), STEPS, LIMIT).min() >= 2


def test_environments_are_taken_as_ids_are() -> None:
    made = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    with make_vec(made, 2) as given, make_vec("playground:CartpoleBalance", 2) as named:
        np.testing.assert_array_equal(given.reset(seed=0)[0], named.reset(seed=0)[0])
        actions = given.action_space.sample()
        np.testing.assert_array_equal(given.step(actions)[0], named.step(actions)[0])


def test_settings_of_its_configuration_are_taken_and_others_refused() -> None:
    with make_vec("playground:CartpoleBalance", 2, episode_length=3) as envs:
        envs.reset(seed=0)
        ends = [envs.step(envs.action_space.sample())[3].tolist() for _ in range(3)]
        assert ends == [[False, False], [False, False], [True, True]]
    with pytest.raises(TypeError, match="did you mean 'episode_length'"):
        make_vec("playground:CartpoleBalance", 2, episode_lenght=3)
    with pytest.raises(ValueError, match="did you mean 'CartpoleBalance'"):
        make_vec("playground:CartpoleBalanc", 2)
