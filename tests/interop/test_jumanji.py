"""Jumanji: its own reset and step by hand, and fleets of its environments, to the bit."""

from __future__ import annotations

from typing import Any

import jax
import jumanji
import numpy as np
import pytest
from by_hand import MODES, Library, Turn, assert_fleet_is_by_hand
from jumanji.wrappers import JumanjiToGymWrapper, MultiToSingleWrapper, jumanji_to_gym_obs

from envfleet import AutoresetMode, make_vec
from envfleet.device import JaxVectorEnv

N = 6
STEPS = 40
LIMIT = 14


class Jumanji(Library):
    def __init__(self, name: str) -> None:
        env: Any = jumanji.make(name)
        if name == "LevelBasedForaging-v0":
            env = MultiToSingleWrapper(env)  # which adds up what its agents get
        self._reset, self._step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))

    def reset(self, keys: Any) -> Any:
        return self._reset(keys)

    def step(self, keys: Any, now: Any, actions: Any) -> Any:
        return self._step(now[0], actions)

    def shown(self, now: Any) -> Turn:
        step, last, alive = now[1], np.asarray(now[1].last()), np.asarray(now[1].discount) > 0
        infos = {"action_mask": step.observation.action_mask}
        return Turn(jumanji_to_gym_obs(step.observation), step.reward, last & ~alive, last & alive, infos)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", ["Game2048-v1", "Snake-v1", "Maze-v0", "LevelBasedForaging-v0"])
def test_a_fleet_is_jumanji_by_hand_to_the_bit(name: str, mode: AutoresetMode) -> None:
    with make_vec(f"jumanji:{name}", N, autoreset_mode=mode, max_episode_steps=LIMIT) as envs:
        assert type(envs) is JaxVectorEnv
        assert assert_fleet_is_by_hand(envs, Jumanji(name), STEPS, LIMIT).min() >= 2


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
            jax.tree.map(np.testing.assert_array_equal, first, firsts[0])


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
