"""gymnax: its own functions stepped by hand, and fleets of its environments, to the bit."""

from __future__ import annotations

from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envfleet import AutoresetMode, make_vec
from envfleet.device.env import JaxVectorEnv

N = 16
STEPS = 60
LIMIT = 25


class ByHand:
    """gymnax by its own means: `jax.jit(jax.vmap(env.step))`, and `env.reset` where an episode has ended.

    Its step resets unconditionally; here its states after a step are taken from `step_env`, as its own step does, and
    the end of an episode is handled by the book of each mode.
    """

    def __init__(self, name: str, seed: int) -> None:
        self.env, params = gymnax.make(name)
        self.params = params.replace(max_steps_in_episode=LIMIT)
        self.keys = jnp.stack([jax.random.PRNGKey(seed + i) for i in range(N)])
        self.episodes, self.elapsed = np.zeros((2, N), np.uint32)
        self.reset_all = jax.jit(jax.vmap(self.env.reset, in_axes=(0, None)))
        self.step_all = jax.jit(jax.vmap(self.env.step, in_axes=(0, 0, 0, None)))
        self.step_states = jax.jit(jax.vmap(self.env.step_env, in_axes=(0, 0, 0, None)))

    def _keys(self) -> Any:
        fold = jax.vmap(jax.random.fold_in)
        return fold(fold(self.keys, jnp.asarray(self.episodes)), jnp.asarray(self.elapsed))

    def reset(self) -> Any:
        observations, self.state = self.reset_all(self._keys(), self.params)
        return np.asarray(observations)

    def step(self, actions: Any) -> tuple[Any, ...]:
        self.elapsed += 1
        key = self._keys()
        _, _, rewards, terminated, truncated, info = self.step_all(key, self.state, actions, self.params)
        observations, self.state, *_ = self.step_states(key, self.state, actions, self.params)
        np.testing.assert_array_equal(observations, info["final_observation"])
        return tuple(np.array(each) for each in (observations, rewards, terminated, truncated))

    def begin(self, mask: Any, observations: Any) -> Any:
        """New episodes where the mask holds."""
        self.episodes += mask
        self.elapsed[mask] = 0
        fresh, states = self.reset_all(self._keys(), self.params)
        self.state = jax.tree.map(
            lambda new, old: jnp.where(mask.reshape((N,) + (1,) * (new.ndim - 1)), new, old), states, self.state
        )
        return np.where(mask[:, None], fresh, observations)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0"])
def test_a_fleet_is_gymnax_by_hand_to_the_bit(name: str, mode: AutoresetMode) -> None:
    hand = ByHand(name, seed=11)
    with make_vec(f"gymnax:{name}", N, autoreset_mode=mode, max_steps_in_episode=LIMIT) as envs:
        assert type(envs) is JaxVectorEnv
        envs.action_space.seed(1)
        np.testing.assert_array_equal(envs.reset(seed=11)[0], hand.reset())
        ended, episodes = np.zeros(N, np.bool_), 0
        for _ in range(STEPS):
            actions = envs.action_space.sample()
            observations, rewards, terminated, truncated, infos = envs.step(actions)
            expected = hand.step(actions)
            last = expected[0]
            if mode is AutoresetMode.NEXT_STEP and ended.any():
                first = hand.begin(ended, expected[0])
                keep = ~ended
                expected = (first, expected[1] * keep, expected[2] & keep, expected[3] & keep)
            ended = expected[2] | expected[3]
            episodes += int(ended.sum())
            if mode is AutoresetMode.SAME_STEP and ended.any():
                for row in np.flatnonzero(ended):
                    np.testing.assert_array_equal(infos["final_obs"][row], last[row])
                expected = (hand.begin(ended, last), *expected[1:])
            for mine, other in zip((observations, rewards, terminated, truncated), expected, strict=True):
                np.testing.assert_array_equal(mine, other)
            if mode is AutoresetMode.DISABLED and ended.any():
                after, _ = envs.reset(options={"reset_mask": ended})
                np.testing.assert_array_equal(after, hand.begin(ended, last))
        assert episodes >= 2 * N


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
