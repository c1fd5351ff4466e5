"""envs.apply: a function runs where each environment lives."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import pytest

from envfleet import make_vec


def describe(env: Any, word: str) -> tuple[str, str, int]:
    """The outermost wrapper, the environment inside, and the process."""
    return word, f"{type(env).__name__} {type(env.unwrapped).__name__}", os.getpid()


def set_limit(env: Any) -> None:
    env.unwrapped.theta_threshold_radians = 9.0


@pytest.mark.parametrize("backend", ["sync", "process"])
def test_a_function_gets_the_whole_environment_where_it_lives(backend: str) -> None:
    with make_vec("CartPole-v1", 3, backend) as envs:
        words, names, places = zip(*envs.apply(describe, "here"), strict=True)
        assert words == ("here",) * 3
        assert names == ("TimeLimit CartPoleEnv",) * 3
        assert (set(places) == {os.getpid()}) == (backend == "sync")
        envs.apply(set_limit, indices=[2])
        assert [limit == 9.0 for limit in envs.get_attr("theta_threshold_radians")] == [False, False, True]


def test_results_come_in_the_order_of_the_indices() -> None:
    fns = [lambda length=length: gymnasium.make("CartPole-v1", max_episode_steps=length) for length in (5, 6, 7)]
    from envfleet import SyncVectorEnv

    with SyncVectorEnv(fns) as envs:
        assert envs.apply(lambda env: env.spec.max_episode_steps, indices=[2, 0]) == (7, 5)


@pytest.mark.parametrize("backend", ["sync", "process"])
def test_an_error_names_the_environment_and_leaves_the_fleet_usable(backend: str) -> None:
    def fail(env: Any) -> None:
        raise ZeroDivisionError("no such thing")

    with make_vec("CartPole-v1", 2, backend) as envs:
        with pytest.raises(ZeroDivisionError, match=r"Environment 1.*fail"):
            envs.apply(fail, indices=1)
        assert envs.apply(describe, "still", indices=0)[0][0] == "still"


def test_compiled_environments_refuse() -> None:
    with make_vec("CartPole-v1", 2, "native") as envs, pytest.raises(AttributeError, match="'sync' or 'process'"):
        envs.apply(describe, "nothing")
