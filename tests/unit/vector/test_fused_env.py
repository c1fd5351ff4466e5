"""Fused wrappers: nobody can tell, except by the clock."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit, TransformReward

from envfleet import AsyncVectorEnv, SyncVectorEnv
from envfleet.errors import EnvRaisedError
from envfleet.testing import assert_same
from envfleet.testing.envs import Command, CounterConfig, CounterEnv, TroubleEnv
from envfleet.vector.fused_env import FusedEnv

BACKENDS = {"sync": SyncVectorEnv, "process": partial(AsyncVectorEnv, num_workers=2)}


class CountingWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """A user's wrapper: counts its steps and leaves its mark on the reward."""

    steps_seen = 0

    def step(self, action: Any) -> Any:
        self.steps_seen += 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward) + 100, terminated, truncated, {**info, "seen": self.steps_seen}


class LenientTimeLimit(TimeLimit[Any, Any]):
    """A user's time limit, one step more generous than it says."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = self.env.step(action)
        self._elapsed_steps += 1
        return observation, reward, terminated, self._elapsed_steps > self._max_episode_steps, info


def counter(length: int = 6, ending: Any = "terminated") -> CounterEnv:
    return CounterEnv(CounterConfig(length=length, ending=ending))


def endless() -> CounterEnv:
    return counter(ending="never")


STACKS: dict[str, Callable[[], gym.Env[Any, Any]]] = {
    "as gym.make": lambda: TimeLimit(OrderEnforcing(PassiveEnvChecker(counter())), 4),
    "limit above the ending": lambda: TimeLimit(OrderEnforcing(PassiveEnvChecker(counter())), 9),
    "limit at the ending": lambda: TimeLimit(OrderEnforcing(counter()), 6),
    "truncates itself": lambda: TimeLimit(counter(3, "truncated"), 5),
    "limit of one": lambda: TimeLimit(PassiveEnvChecker(endless()), 1),
    "no limit": lambda: OrderEnforcing(PassiveEnvChecker(counter())),
    "checker outside": lambda: PassiveEnvChecker(OrderEnforcing(TimeLimit(counter(), 5))),
    "twice enforced, twice checked": lambda: OrderEnforcing(
        PassiveEnvChecker(TimeLimit(OrderEnforcing(PassiveEnvChecker(counter())), 3))
    ),
    "short limit in a long one": lambda: TimeLimit(TimeLimit(endless(), 3), 5),
    "long limit in a short one": lambda: TimeLimit(OrderEnforcing(TimeLimit(endless(), 5)), 3),
    "user's wrapper outside": lambda: CountingWrapper(TimeLimit(OrderEnforcing(endless()), 4)),
    "user's wrapper between": lambda: TimeLimit(CountingWrapper(OrderEnforcing(TimeLimit(endless(), 5))), 4),
    "user's wrapper inside": lambda: TimeLimit(OrderEnforcing(CountingWrapper(endless())), 4),
    "user's time limit": lambda: LenientTimeLimit(OrderEnforcing(endless()), 4),
    "user's time limit inside": lambda: TimeLimit(LenientTimeLimit(endless(), 4), 7),
    "bare": counter,
    "CartPole": lambda: gym.make("CartPole-v1", max_episode_steps=15),
    "FrozenLake": lambda: gym.make("FrozenLake-v1", max_episode_steps=6),
    "Pendulum": lambda: gym.make("Pendulum-v1", max_episode_steps=20),
}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("look_every", [1, 7, 1000], ids=["looked at always", "sometimes", "never"])
def test_a_fused_stack_steps_as_gymnasiums(name: str, look_every: int) -> None:
    plain, member = STACKS[name](), FusedEnv(STACKS[name]())
    plain.action_space.seed(1)
    assert_same(member.reset(seed=3), plain.reset(seed=3))
    for count in range(60):
        action = plain.action_space.sample()
        expected = plain.step(action)
        assert_same(member.step(action), expected)
        if count % look_every == 0:
            member.before_access()
            for attribute in "_elapsed_steps", "_max_episode_steps", "has_reset", "steps_seen":
                assert member.env.has_wrapper_attr(attribute) == plain.has_wrapper_attr(attribute)
                if plain.has_wrapper_attr(attribute):
                    assert member.env.get_wrapper_attr(attribute) == plain.get_wrapper_attr(attribute)
            member.after_access()
        if expected[2] or expected[3]:
            assert_same(member.reset(), plain.reset())


@pytest.mark.parametrize("wrapper", [TimeLimit, OrderEnforcing, PassiveEnvChecker])
def test_settled_wrappers_are_stepped_no_more(wrapper: Any) -> None:
    member = FusedEnv(TimeLimit(OrderEnforcing(PassiveEnvChecker(endless())), 100))
    calls = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is wrapper.step.__code__:
            calls.append(frame.f_locals["action"])

    member.reset()
    sys.setprofile(note)  # and not another step: that would be honoured
    try:
        for action in range(5):
            member.step(action)
    finally:
        sys.setprofile(None)
    assert calls == [0, 1]  # two steps are what the checker wants to see


# --- seen from outside -----------------------------------------------------------------------------------


def limited(limit: int) -> gym.Env[Any, Any]:
    return TimeLimit(OrderEnforcing(PassiveEnvChecker(endless())), limit)


def steps_until_truncated(envs: Any) -> int:
    """Steps two environments alike until they are truncated."""
    for count in range(1, 50):
        truncated = envs.step([0, 0])[3]
        if truncated.any():
            assert truncated.all()
            return count
    raise AssertionError("never truncated")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_step_count_and_the_limit_are_seen_and_set_from_outside(backend: str) -> None:
    with BACKENDS[backend]([partial(limited, 20)] * 2) as envs:
        assert envs.get_attr("_elapsed_steps") == (None, None)
        envs.reset()
        for count in range(6):
            assert envs.get_attr("_elapsed_steps") == envs.call("_elapsed_steps") == (count, count)
            envs.step([0, 0])
        assert envs.get_attr("_max_episode_steps") == (20, 20)
        envs.set_attr("_elapsed_steps", [5, 11])
        envs.step([0, 0])
        assert envs.call("get_wrapper_attr", "_elapsed_steps") == (6, 12)
        envs.call("set_wrapper_attr", "_elapsed_steps", 17)
        assert steps_until_truncated(envs) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_limit_changed_in_the_middle_of_an_episode_counts_at_once(backend: str) -> None:
    with BACKENDS[backend]([partial(limited, 8)] * 2) as envs:
        envs.reset()
        for _ in range(5):
            assert not envs.step([0, 0])[3].any()
        envs.set_attr("_max_episode_steps", 4)  # already exceeded
        assert steps_until_truncated(envs) == 1
        assert steps_until_truncated(envs) == 1 + 4  # the autoreset, then the new limit
        envs.set_attr("_max_episode_steps", [9, 9])
        assert steps_until_truncated(envs) == 1 + 9


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_before_the_first_reset_is_refused_as_gymnasium_refuses_it(backend: str) -> None:
    with BACKENDS[backend]([partial(limited, 8)] * 2) as envs:
        with pytest.raises(ResetNeeded, match=r"Cannot call env.step\(\) before calling env.reset\(\)") as caught:
            envs.step([0, 0])
        assert isinstance(caught.value, EnvRaisedError)
        with pytest.raises(ResetNeeded, match="render"):
            envs.render()
        envs.reset()
        assert steps_until_truncated(envs) == 8


def test_a_step_that_raises_is_not_counted() -> None:
    member = FusedEnv(TimeLimit(TroubleEnv(CounterConfig(ending="never")), 3))
    member.reset()
    member.step(0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            member.step(int(Command.RAISE))
    assert [member.step(0)[3] for _ in range(2)] == [False, True]


def test_a_step_set_from_outside_is_the_step_taken() -> None:
    with SyncVectorEnv([partial(limited, 20)]) as envs:
        envs.reset()
        for _ in range(4):
            envs.step([0])
        envs.set_attr("step", lambda action: (np.zeros(5, np.int64), 7.0, False, False, {}))
        assert envs.step([0])[1] == [7.0]


# --- the checker's warnings ------------------------------------------------------------------------------


class SloppyEnv(CounterEnv):
    """Everything the passive checker warns of: values outside the spaces, and objects used twice."""

    def __init__(self) -> None:
        super().__init__(CounterConfig(reuse_buffer=True, ending="never"))
        self.observation_space = spaces.Box(0, 1, (5,), np.int64)
        self.info: dict[str, Any] = {}

    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0], self.info

    def step(self, action: Any) -> Any:
        return self._observe(3), float("nan"), 0, False, self.info


def warnings_by_call(reset: Any, step: Any, script: str) -> list[tuple[str, list[str]]]:
    told = []
    for call in script:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            reset(seed=0) if call == "r" else step(1)
        told.append((call, [str(warning.message) for warning in caught]))
    return told


@pytest.mark.parametrize("script", ["rsssrss", "rsrsrss", "rrsss"])
def test_the_checker_warns_when_gymnasiums_does(script: str) -> None:
    def make() -> gym.Env[Any, Any]:
        return TimeLimit(OrderEnforcing(PassiveEnvChecker(SloppyEnv())), 50)

    plain, member = make(), FusedEnv(make())
    expected = warnings_by_call(plain.reset, plain.step, script)
    # Through a function: the member's own `step` changes while it settles.
    assert warnings_by_call(member.reset, lambda action: member.step(action), script) == expected
    with SyncVectorEnv([make]) as envs:
        assert warnings_by_call(envs.reset, lambda action: envs.step([action]), script) == expected
    assert sum(bool(told) for _, told in expected) >= 3, "the environment is not sloppy enough"


# --- the quick action space ------------------------------------------------------------------------------


class SpaceWatcherEnv(CounterEnv):
    def space_class(self) -> str:
        return type(self.action_space).__qualname__

    def pickled_space(self) -> bytes:
        return pickle.dumps(self.action_space)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("wrap", [lambda: SpaceWatcherEnv(), lambda: TimeLimit(SpaceWatcherEnv(), 9)])
def test_the_action_space_is_a_discrete_whenever_one_looks(backend: str, wrap: Any) -> None:
    with BACKENDS[backend]([wrap] * 2) as envs:
        envs.reset()
        envs.step([0, 0])
        assert envs.call("space_class") == ("Discrete",) * 2
        assert [type(pickle.loads(text)) for text in envs.call("pickled_space")] == [spaces.Discrete] * 2
        assert type(envs.single_action_space) is spaces.Discrete
        envs.set_attr("action_space", spaces.Discrete(3))
        assert envs.get_attr("action_space") == (spaces.Discrete(3),) * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_get_attr_returns_is_a_discrete(backend: str) -> None:
    with BACKENDS[backend]([counter]) as envs:
        assert type(envs.get_attr("action_space")[0]) is spaces.Discrete


class OneSpaceForAllEnv(CounterEnv):
    action_space = spaces.Discrete(10)

    def __init__(self) -> None:
        own = type(self).action_space
        super().__init__()
        self.action_space = own


def test_a_closed_fleet_leaves_shared_spaces_as_they_were() -> None:
    with SyncVectorEnv([OneSpaceForAllEnv] * 2) as envs:
        envs.reset()
    assert type(OneSpaceForAllEnv.action_space) is spaces.Discrete


def test_other_spaces_and_subclasses_are_left_alone() -> None:
    class OwnDiscrete(spaces.Discrete):
        pass

    for space in OwnDiscrete(10), spaces.MultiDiscrete([10]), spaces.Box(0, 9, (), np.int64):
        env = counter()
        env.action_space = space  # type: ignore[assignment]
        before = dict(vars(space))
        FusedEnv(TransformReward(env, float))
        assert vars(space) == before
