"""gymnax: its own functions stepped by hand, and fleets of its environments, to the bit."""

from __future__ import annotations

from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import MODES, Library, Turn, assert_fleet_is_by_hand

from envfleet import AutoresetMode, make_vec
from envfleet.device.env import JaxVectorEnv

N = 16
STEPS = 60
LIMIT = 25


class Gymnax(Library):
    """Its ``step`` resets unconditionally: rewards and flags are that one's, states those of ``step_env``."""

    def __init__(self, name: str) -> None:
        env, params = gymnax.make(name)
        self.params = params.replace(max_steps_in_episode=LIMIT)
        self.reset_all = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))
        self.step_all = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
        self.step_states = jax.jit(jax.vmap(env.step_env, in_axes=(0, 0, 0, None)))

    def reset(self, keys: Any) -> Any:
        observations, state = self.reset_all(keys, self.params)
        no = jnp.zeros(len(keys), jnp.bool_)
        return state, Turn(observations, jnp.zeros(len(keys)), no, no, {})

    def step(self, keys: Any, now: Any, actions: Any) -> Any:
        _, _, rewards, terminated, truncated, info = self.step_all(keys, now[0], actions, self.params)
        observations, state, *_ = self.step_states(keys, now[0], actions, self.params)
        np.testing.assert_array_equal(observations, info["final_observation"])
        return state, Turn(observations, rewards, terminated, truncated, {})

    def shown(self, now: Any) -> Turn:
        return now[1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0"])
def test_a_fleet_is_gymnax_by_hand_to_the_bit(name: str, mode: AutoresetMode) -> None:
    with make_vec(f"gymnax:{name}", N, autoreset_mode=mode, max_steps_in_episode=LIMIT) as envs:
        assert type(envs) is JaxVectorEnv
        assert assert_fleet_is_by_hand(envs, Gymnax(name), STEPS).min() >= 2


@pytest.mark.parametrize("what", [lambda: gymnax.make("CartPole-v1"), lambda: gymnax.make("CartPole-v1")[0]])
def test_environments_are_taken_as_ids_are(what: Any) -> None:
    with make_vec(what(), 3) as given, make_vec("gymnax:CartPole-v1", 3) as named:
        np.testing.assert_array_equal(given.reset(seed=2)[0], named.reset(seed=2)[0])
        assert "functional" in given.plan


def test_parameters_reach_gymnax() -> None:
    with make_vec("gymnax:CartPole-v1", 2, gravity=0.0) as light, make_vec("gymnax:CartPole-v1", 2) as plain:
        for envs in (light, plain):
            envs.reset(seed=0)
        pushed = [envs.step(np.ones(2, np.int64))[0] for envs in (light, plain)]
        assert not np.array_equal(*pushed)
        assert light.get_attr("gravity") == (0.0, 0.0)


def test_an_id_that_gymnax_does_not_have_is_explained() -> None:
    with pytest.raises(ValueError, match="did you mean 'CartPole-v1'"):
        make_vec("gymnax:CartPol-v1", 2)


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar"])
def test_frames_are_gymnaxs_own(name: str) -> None:
    with make_vec(f"gymnax:{name}", 2, render_mode="rgb_array") as envs:
        envs.reset(seed=0)
        frames = envs.render()
        assert len(frames) == 2
        assert frames[0].dtype == np.uint8
        assert frames[0].std() > 1
        for _ in range(3):
            envs.step(np.ones(2, np.int64))
        assert not np.array_equal(envs.render()[0], frames[0])
