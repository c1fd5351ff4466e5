"""MuJoCo Playground: its own reset and step by hand, and fleets of its environments, to the bit.

Only environments of its dm_control suite: those of robots download models when they are made.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mujoco_playground import registry

from envfleet import make_vec
from envfleet.device import JaxVectorEnv

N = 4
STEPS = 25
LIMIT = 9


def _keys(episodes: Any) -> Any:
    fold = jax.vmap(jax.random.fold_in)
    own = jnp.stack([jax.random.PRNGKey(5 + i) for i in range(N)])
    return fold(fold(own, jnp.asarray(episodes, jnp.uint32)), jnp.zeros(N, jnp.uint32))


@pytest.mark.parametrize("name", ["CartpoleBalance", "PendulumSwingup"])
def test_a_fleet_is_playground_by_hand_to_the_bit(name: str) -> None:
    env = registry.load(name, config_overrides={"impl": "jax"})
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    with make_vec(f"playground:{name}", N, autoreset_mode="SameStep", max_episode_steps=LIMIT) as envs:
        assert type(envs) is JaxVectorEnv
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
        assert (episodes >= 2).all()


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
