"""Environments that change while they are stepped, themselves or their wrappers: each does what it would do alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from envfleet import AsyncVectorEnv, SyncVectorEnv
from envfleet.testing import assert_same

STEPS = 40
BACKENDS: dict[str, Any] = {"sync": SyncVectorEnv, "process": partial(AsyncVectorEnv, num_workers=1, context="fork")}


class ChangingEnv(gym.Env[Any, Any]):
    """Counts in its reward; subclasses change something in ``change``, which each step calls with its number."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1e9, 1e9, (2,), np.float64)
        self.action_space = spaces.Discrete(3)
        self.steps = 0
        self.outside: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.change(self.steps)
        return self._observation(), float(self.steps), False, False, {}

    def change(self, number: int) -> None:
        """What a subclass does."""

    def wrapper(self, kind: type[Any]) -> Any:
        """The wrapper of this kind around it."""
        env = self.outside
        while not isinstance(env, kind):
            env = env.env
        return env

    def _observation(self) -> Any:
        return np.array([self.steps, self.np_random.random()])


class StateMachine(ChangingEnv):
    """Goes from state to state by giving itself another step."""

    def change(self, number: int) -> None:
        if number == 5:
            self.step = self.rest  # type: ignore[method-assign]

    def rest(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 12:
            del self.step  # its class's again
        return self._observation(), -1.0, False, False, {}


class PatchedClass(ChangingEnv):
    def change(self, number: int) -> None:
        if number == 4:
            type(self).step = PatchedClass.other  # type: ignore[method-assign]

    def other(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 9:
            type(self).step = ChangingEnv.step  # type: ignore[method-assign]
        return self._observation(), 100.0, self.steps == 20, False, {}


class ShortensItsTime(ChangingEnv):
    def change(self, number: int) -> None:
        if number == 6:
            self.wrapper(TimeLimit)._max_episode_steps = 8
        if number == 7:
            self.wrapper(TimeLimit)._max_episode_steps = np.int64(9)


class LosesCount(ChangingEnv):
    """Sets its time limit's count back, forth, and to other kinds of numbers, and shows what it finds there."""

    def change(self, number: int) -> None:
        limit = self.wrapper(TimeLimit)
        if number in (5, 9):
            limit._elapsed_steps -= 3
        if number == 12:
            limit._elapsed_steps = np.int32(1)
        if number == 15:
            vars(limit)["_elapsed_steps"] = 2**70
            limit._max_episode_steps = 2**70 + 3
        self.np_random.random(limit._elapsed_steps % 7)


class PatchesWrappers(ChangingEnv):
    """Has another step on each of its wrappers in turn, for some steps."""

    def change(self, number: int) -> None:
        for place, kind in enumerate((TimeLimit, OrderEnforcing, PassiveEnvChecker)):
            wrapper = self.wrapper(kind)
            if number == 5 + 4 * place:
                wrapper.step = partial(pay_more, type(wrapper).step, wrapper)
            if number == 7 + 4 * place:
                del wrapper.step


def pay_more(step: Callable[[Any, Any], Any], wrapper: Any, action: Any) -> Any:
    observation, reward, *rest = step(wrapper, action)
    return observation, reward + 1000, *rest


class PatchesClasses(ChangingEnv):
    """The same for the wrappers' classes, and for one that they inherit from."""

    def change(self, number: int) -> None:
        for place, kind in enumerate((TimeLimit, OrderEnforcing, PassiveEnvChecker, gym.Wrapper)):
            if number == 4 + 4 * place:
                self.original = kind.step
                kind.step = partial_method(pay_more, kind.step)
            if number == 6 + 4 * place:
                kind.step = self.original


def partial_method(function: Callable[..., Any], first: Any) -> Any:
    return lambda self, action: function(first, self, action)


class MovesOut(ChangingEnv):
    """Has another environment put in its place, under one of its wrappers."""

    def change(self, number: int) -> None:
        if number == 6:
            guest = ChangingEnv()
            guest.reset(seed=3)
            guest.steps = 500
            self.wrapper(PassiveEnvChecker).env = guest
        if number == 8:
            raise AssertionError("it is no longer there")


class GivesNewAttributes(ChangingEnv):
    """Replaces the dict of a wrapper's attributes, and has it look again at what it had settled."""

    def change(self, number: int) -> None:
        limit = self.wrapper(TimeLimit)
        if number == 5:
            limit.__dict__ = {**vars(limit), "_max_episode_steps": 9}
        if number == 7:
            limit.__class__ = EasyTimeLimit
        if number == 9:
            limit.__class__ = TimeLimit


class EasyTimeLimit(TimeLimit[Any, Any]):
    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, 0.5, terminated, truncated, info


class ChangesItsSpace(ChangingEnv):
    """Says in its reward whether an action is in its space, which it changes."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(self.action_space.contains(action)) + 2 * (action in self.action_space), *rest

    def change(self, number: int) -> None:
        space = cast(spaces.Discrete, self.action_space)
        if number == 3:
            space.n = np.int64(1)
        if number == 6:
            vars(space)["n"] = np.int64(3)
        if number == 9:
            space.start = np.int64(1)
        if number == 12:
            space.n = 2  # type: ignore[assignment]
        if number == 15:
            self.action_space = deepcopy(space)
            self.action_space.n = np.int64(7)  # type: ignore[attr-defined]
        if number == 18:
            space.n = np.int64(1)  # no longer its own
        if number == 21:
            self.action_space.contains = lambda _: False  # type: ignore[method-assign]


class SwapsAttributes(ChangingEnv):
    """Gives its time limit other attributes for some steps, and then those that it had before."""

    def change(self, number: int) -> None:
        limit = self.wrapper(TimeLimit)
        if number == 5:
            self.kept = vars(limit)
            limit.__dict__ = {**self.kept, "_elapsed_steps": 20, "_max_episode_steps": np.int64(30)}
        if number == 8:
            limit.__dict__ = self.kept
        self.np_random.random(limit._elapsed_steps % 7)


class PatchesItsSpacesClass(ChangesItsSpace):
    """Has all spaces of its kind answer otherwise for some steps."""

    def change(self, number: int) -> None:
        if number == 5:
            self.original = spaces.Discrete.contains
            spaces.Discrete.contains = lambda self, x: False  # type: ignore[method-assign]
        if number == 9:
            spaces.Discrete.contains = self.original  # type: ignore[method-assign]


class MakesItsStepUp(ChangingEnv):
    """Has a step that is made up whenever it is asked for."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "step":
            self.asked += 1
            if self.asked % 3 == 0:
                return partial(pay_more, ChangingEnv.step, self)
        return super().__getattribute__(name)


KINDS = [
    StateMachine,
    PatchedClass,
    ShortensItsTime,
    LosesCount,
    PatchesWrappers,
    PatchesClasses,
    MovesOut,
    GivesNewAttributes,
    SwapsAttributes,
    ChangesItsSpace,
    PatchesItsSpacesClass,
    MakesItsStepUp,
]


def standard(kind: type[ChangingEnv], limit: int = 25) -> Any:
    env = kind()
    env.outside = TimeLimit(OrderEnforcing(PassiveEnvChecker(env)), limit)
    return env.outside


def alone(env: Any, actions: Any) -> Iterator[tuple[Any, ...]]:
    """What a single environment says, reset at the step after an episode ended."""
    ended = False
    for action in actions:
        if ended:
            yield env.reset()[0], 0.0, False, False
            ended = False
        else:
            observation, reward, terminated, truncated, _ = env.step(action)
            yield observation.copy(), reward, terminated, truncated
            ended = terminated or truncated


def assert_plays_as_alone(make: Callable[[], Any], backend: str, restore: Callable[[], None] = lambda: None) -> None:
    actions = np.random.default_rng(0).integers(0, 3, STEPS)
    env = make()
    env.reset(seed=5)
    expected = list(alone(env, actions))
    restore()
    with BACKENDS[backend]([make]) as envs:
        envs.reset(seed=5)
        for number, (action, row) in enumerate(zip(actions, expected, strict=True)):
            found = envs.step(np.array([action]))
            assert_same(
                tuple(map(np.asarray, (part[0] for part in found[:4]))), tuple(map(np.asarray, row)), str(number)
            )
    restore()


@pytest.fixture(autouse=True)
def _classes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (TimeLimit, OrderEnforcing, PassiveEnvChecker, gym.Wrapper):
        monkeypatch.setattr(kind, "step", kind.step)  # put back whatever a test leaves
    monkeypatch.setattr(spaces.Discrete, "contains", spaces.Discrete.contains)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_plays_as_it_does_alone(kind: type[ChangingEnv], backend: str) -> None:
    def restore() -> None:
        if kind is PatchedClass:
            kind.step = ChangingEnv.step  # type: ignore[method-assign]

    assert_plays_as_alone(partial(standard, kind), backend, restore)


@pytest.mark.parametrize("kind", [StateMachine, PatchedClass, ChangesItsSpace])
def test_without_wrappers_too(kind: type[ChangingEnv]) -> None:
    def restore() -> None:
        if kind is PatchedClass:
            kind.step = ChangingEnv.step  # type: ignore[method-assign]

    assert_plays_as_alone(kind, "sync", restore)


def test_whoever_holds_the_wrapper_sees_and_changes_its_count() -> None:
    held: list[Any] = []

    def make() -> Any:
        held.append(gym.make("CartPole-v1", max_episode_steps=30))
        return held[-1]

    with SyncVectorEnv([make]) as envs:
        envs.reset(seed=0)
        for count in range(1, 6):
            envs.step([count % 2])
            assert held[-1]._elapsed_steps == count
        held[-1]._elapsed_steps = 29
        assert envs.step([0])[3].tolist() == [True]
        envs.step([0])
        assert held[-1]._elapsed_steps == 0
        held[-1]._max_episode_steps = 2
        assert [bool(envs.step([number % 2])[3][0]) for number in range(2)] == [False, True]


def test_a_count_that_somebody_keeps_stays_as_it_was() -> None:
    with SyncVectorEnv([partial(standard, ChangingEnv, 10_000)] * 2) as envs:
        envs.reset(seed=0)
        limit: Any = envs.envs[0]
        kept, copied = [], []
        for _ in range(600):
            envs.step([0, 1])
            kept.append(limit._elapsed_steps)
            envs.step([0, 1])  # nobody keeps this one
            copied.append(dict(vars(limit)))
        assert kept == list(range(1, 1200, 2))
        assert [each["_elapsed_steps"] for each in copied] == list(range(2, 1201, 2))


def test_a_class_that_was_patched_before_the_fleet_was_made_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimeLimit, "step", lambda self, action: pay_more(lambda w, a: w.env.step(a), self, action))
    assert_plays_as_alone(partial(standard, ChangingEnv), "sync")


def test_a_wrapper_around_itself_is_refused_as_gymnasium_refuses_it() -> None:
    with SyncVectorEnv([partial(standard, ChangingEnv)]) as envs:
        envs.reset()
        envs.step([0])
        order = envs.envs[0].env
        order.env = order  # type: ignore[attr-defined]
        with pytest.raises(RecursionError):
            envs.step([0])
        order.env = ChangingEnv()  # type: ignore[attr-defined]
