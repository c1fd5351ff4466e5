"""Brax: its own reset and step by hand, and fleets of its environments, to the bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax import envs as brax_envs

from envfleet import make_vec
from envfleet.device import JaxVectorEnv

# Brax says that others maintain its successor; the message comes once per process, whichever test is first.
pytestmark = pytest.mark.filterwarnings("ignore:Brax System:UserWarning")

N = 6
STEPS = 40
LIMIT = 12


def _keys(episodes: Any) -> Any:
    fold = jax.vmap(jax.random.fold_in)
    own = jnp.stack([jax.random.PRNGKey(5 + i) for i in range(N)])
    return fold(fold(own, jnp.asarray(episodes, jnp.uint32)), jnp.zeros(N, jnp.uint32))


@pytest.mark.parametrize("name", ["fast", "inverted_pendulum"])
def test_a_fleet_is_brax_by_hand_to_the_bit(name: str) -> None:
    arguments: dict[str, Any] = {} if name == "fast" else {"backend": "generalized"}
    env = brax_envs.get_environment(name, **arguments)
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    made = {"env_kwargs": {**arguments, "max_episode_steps": LIMIT}}  # make_vec has a `backend` of its own
    with JaxVectorEnv(f"brax:{name}", N, autoreset_mode="SameStep", **made) as envs:
        envs.action_space.seed(2)
        episodes, elapsed = np.zeros(N, int), np.zeros(N, int)
        state = reset(_keys(episodes))
        np.testing.assert_array_equal(envs.reset(seed=5)[0], state.obs)
        for _ in range(STEPS):
            actions = envs.action_space.sample()
            observations, rewards, terminated, truncated, infos = envs.step(actions)
            state, elapsed = step(state, jnp.asarray(actions)), elapsed + 1
            done, over = np.asarray(state.done) > 0, elapsed >= LIMIT
            np.testing.assert_array_equal(terminated, done)
            np.testing.assert_array_equal(truncated, over)
            np.testing.assert_array_equal(rewards, np.asarray(state.reward, np.float64))
            ended = done | over
            for row in np.flatnonzero(ended):
                np.testing.assert_array_equal(infos["final_obs"][row], state.obs[row])
            if ended.any():
                episodes, elapsed = episodes + ended, np.where(ended, 0, elapsed)
                fresh = reset(_keys(episodes))
                state = jax.tree.map(
                    lambda new, old, mask=ended: jnp.where(mask.reshape((N,) + (1,) * (new.ndim - 1)), new, old),
                    fresh,
                    state,
                )
            np.testing.assert_array_equal(observations, state.obs)
        assert (episodes >= 3).all()


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
