"""Jumanji: its own reset and step by hand, and fleets of its environments, to the bit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jumanji
import numpy as np
import pytest
from jumanji.wrappers import JumanjiToGymWrapper, MultiToSingleWrapper, jumanji_to_gym_obs

from envfleet import make_vec
from envfleet.device import JaxVectorEnv

N = 6
STEPS = 40
LIMIT = 14


def _keys(episodes: Any) -> Any:
    fold = jax.vmap(jax.random.fold_in)
    own = jnp.stack([jax.random.PRNGKey(5 + i) for i in range(N)])
    return fold(fold(own, jnp.asarray(episodes, jnp.uint32)), jnp.zeros(N, jnp.uint32))


def _assert_same(mine: Any, theirs: Any) -> None:
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys()
        for key in mine:
            _assert_same(mine[key], theirs[key])
    else:
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", ["Game2048-v1", "Snake-v1", "Maze-v0", "LevelBasedForaging-v0"])
def test_a_fleet_is_jumanji_by_hand_to_the_bit(name: str) -> None:
    env: Any = jumanji.make(name)
    if name == "LevelBasedForaging-v0":
        env = MultiToSingleWrapper(env)  # which adds up what its agents get
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    with make_vec(f"jumanji:{name}", N, autoreset_mode="SameStep", max_episode_steps=LIMIT) as envs:
        assert type(envs) is JaxVectorEnv
        envs.action_space.seed(2)
        episodes, elapsed = np.zeros(N, int), np.zeros(N, int)
        state, shown = reset(_keys(episodes))
        observations, infos = envs.reset(seed=5)
        _assert_same(observations, jumanji_to_gym_obs(shown.observation))
        _assert_same(infos["action_mask"], shown.observation.action_mask)
        for _ in range(STEPS):
            actions = envs.action_space.sample()
            observations, rewards, terminated, truncated, infos = envs.step(actions)
            (state, shown), elapsed = step(state, jnp.asarray(actions)), elapsed + 1
            last = np.asarray(shown.last())
            alive = np.asarray(shown.discount) > 0
            np.testing.assert_array_equal(rewards, shown.reward)
            np.testing.assert_array_equal(terminated, last & ~alive)
            np.testing.assert_array_equal(truncated, (last & alive) | (elapsed >= LIMIT))
            ended, seen = terminated | truncated, jumanji_to_gym_obs(shown.observation)
            for row in np.flatnonzero(ended):
                _assert_same(infos["final_obs"][row], jax.tree.map(lambda leaf, at=row: leaf[at], seen))
            if ended.any():
                episodes, elapsed = episodes + ended, np.where(ended, 0, elapsed)
                fresh = reset(_keys(episodes))
                state, shown = jax.tree.map(
                    lambda new, old, mask=ended: jnp.where(mask.reshape((N,) + (1,) * (new.ndim - 1)), new, old),
                    fresh,
                    (state, shown),
                )
            _assert_same(observations, jumanji_to_gym_obs(shown.observation))
            _assert_same(infos["action_mask"], shown.observation.action_mask)
        assert (episodes >= 2).all()


def test_spaces_are_those_of_jumanjis_own_wrapper_for_gymnasium() -> None:
    with make_vec("jumanji:Snake-v1", 2) as envs:
        theirs = JumanjiToGymWrapper(jumanji.make("Snake-v1"))
        assert envs.single_action_space == theirs.action_space
        for key, space in envs.single_observation_space.items():
            assert (space.shape, space.dtype) == (
                theirs.observation_space[key].shape,
                theirs.observation_space[key].dtype,
            )
        assert envs.single_observation_space.contains(jax.tree.map(lambda leaf: leaf[0], envs.reset(seed=0)[0]))


def test_environments_and_classes_are_taken_as_ids_are() -> None:
    made = jumanji.make("Game2048-v1")
    with (
        make_vec(made, 2) as given,
        make_vec(type(made), 2, board_size=4) as of_class,
        make_vec("jumanji:Game2048-v1", 2) as named,
    ):
        firsts = [envs.reset(seed=3)[0] for envs in (given, of_class, named)]
        for first in firsts[1:]:
            _assert_same(first, firsts[0])


def test_arguments_reach_the_constructor() -> None:
    with make_vec("jumanji:Game2048-v1", 2, board_size=3) as envs:
        assert envs.reset(seed=0)[0]["board"].shape == (2, 3, 3)
    with pytest.raises(TypeError, match="boardsize"):
        make_vec("jumanji:Game2048-v1", 2, boardsize=3)
    with pytest.raises(ValueError, match="did you mean 'Snake-v1'"):
        make_vec("jumanji:Snak-v1", 2)


@pytest.mark.parametrize("name", ["Game2048-v1", "Snake-v1", "Maze-v0"])
def test_frames_are_jumanjis_own(name: str) -> None:
    with make_vec(f"jumanji:{name}", 2, render_mode="rgb_array") as envs:
        envs.reset(seed=0)
        frames = envs.render()
        assert len(frames) == 2
        assert frames[0].dtype == np.uint8
        assert frames[0].shape[2] == 3
        assert frames[0].std() > 1
        for _ in range(3):
            envs.step(envs.action_space.sample())
        assert not np.array_equal(envs.render(), frames)
