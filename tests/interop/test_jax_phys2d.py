"""Gymnasium's functional environments: its functions by hand, and the transition that its own fleet loses."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.phys2d.cartpole import CartPoleFunctional

from envfleet import make_vec
from envfleet.device.env import JaxVectorEnv

N = 8


def _push(step: int) -> Any:
    return (np.arange(N) + step // 3) % 2


@pytest.mark.parametrize("limit", [7, 500])
def test_cart_pole_is_its_functions_by_hand_to_the_bit(limit: int) -> None:
    env = CartPoleFunctional()
    functions = {name: jax.jit(jax.vmap(getattr(env, name))) for name in ("initial", "transition", "terminal")}
    keys = jnp.stack([jax.random.PRNGKey(40 + i) for i in range(N)])
    fold = jax.vmap(jax.random.fold_in)
    episodes, elapsed, ended = np.zeros(N, np.uint32), np.zeros(N, np.uint32), np.zeros(N, np.bool_)
    with make_vec("phys2d/CartPole-v1", N, max_episode_steps=limit) as envs:
        assert type(envs) is JaxVectorEnv

        def begin() -> Any:
            return functions["initial"](fold(fold(keys, episodes), np.zeros(N, np.uint32)))

        state = begin()
        np.testing.assert_array_equal(envs.reset(seed=40)[0], state)
        for step in range(50):
            actions = _push(step)
            observations, rewards, terminated, truncated, _ = envs.step(actions)
            elapsed = np.where(ended, 0, elapsed + 1)
            after = functions["transition"](state, jnp.asarray(actions), keys)
            episodes = (episodes + ended).astype(np.uint32)
            state = jnp.where(ended[:, None], begin(), after)
            falls = np.asarray(functions["terminal"](after, keys)) & ~ended
            limits = (elapsed >= limit) & ~ended
            np.testing.assert_array_equal(observations, state)
            np.testing.assert_array_equal(rewards, np.where(ended, 0.0, 1.0))
            np.testing.assert_array_equal(terminated, falls)
            np.testing.assert_array_equal(truncated, limits)
            ended = falls | limits
        assert (episodes >= 1).all()


def test_no_transition_is_lost_when_another_environment_resets() -> None:
    """Gymnasium's FunctionalJaxVectorEnv sets those back that do not reset: their step has no effect."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs: Any = gym.make_vec("phys2d/CartPole-v1", num_envs=N, vectorization_mode="vector_entry_point")
    before, _ = theirs.reset(seed=0)
    lost = 0
    ended = np.zeros(N, np.bool_)
    for step in range(40):
        after, _, terminated, truncated, _ = theirs.step(jnp.asarray(_push(step)))
        lost += int((ended.any() & ~ended & (np.asarray(after) == np.asarray(before)).all(1)).sum())
        before, ended = after, np.asarray(terminated | truncated)
    assert lost > 0, "Gymnasium's own fleet loses no transition any more: say so in docs/jax.md"
    with make_vec("phys2d/CartPole-v1", N) as ours:
        before, _ = ours.reset(seed=0)
        for step in range(40):
            after, *_ = ours.step(_push(step))
            assert not (after == before).all(1).any()
            before = after


def test_frames_are_gymnasiums_own() -> None:
    with make_vec("phys2d/CartPole-v1", 2, render_mode="rgb_array") as envs:
        envs.reset(seed=0)
        frames = envs.render()
        assert frames[0].shape == (400, 600, 3)
        assert frames[0].std() > 1


def test_pendulum_and_tabular_environments_run() -> None:
    for name in ("phys2d/Pendulum-v0", "tabular/CliffWalking-v0", "tabular/Blackjack-v0"):
        with make_vec(name, 3) as envs:
            assert type(envs) is JaxVectorEnv
            envs.reset(seed=0)
            envs.action_space.seed(0)
            for _ in range(20):
                assert np.isfinite(envs.step(envs.action_space.sample())[1]).all()
