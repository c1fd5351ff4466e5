"""A neighbour of a crash that would go on as another episode says so: all that it had shown is compared, not a part."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envfleet.vector import AsyncVectorEnv
from envfleet.vector.infos import info_digest
from envfleet.vector.pickling import UNKNOWN, value_digest

DIE = 2


class Bandit(gymnasium.Env[Any, Any]):
    """Its observation is always the same; subclasses pay what no seed determines. Action 2 ends its process."""

    def __init__(self, length: int = 1000) -> None:
        self.observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.length, self.steps = length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        if action == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1
        return self.outcome()

    def outcome(self) -> Any:
        return np.zeros(2, np.float32), self.np_random.random(), False, self.steps >= self.length, {}


class PaysByTheClock(Bandit):
    def outcome(self) -> Any:
        return np.zeros(2, np.float32), float(time.time_ns() % 2**50), False, False, {}


class PaysByItsProcess(Bandit):
    def outcome(self) -> Any:
        return np.zeros(2, np.float32), os.getpid(), False, False, {}


class TellsByTheClock(Bandit):
    def outcome(self) -> Any:
        return np.zeros(2, np.float32), 1.0, False, False, {"time": time.time_ns()}


class TellsMuch(Bandit):
    """Its info does not fit into the block."""

    def outcome(self) -> Any:
        info = {"deep": [{"name": "x"}, np.array([os.getpid()])]}
        return np.zeros(2, np.float32), 1.0, False, False, info


class TellsWhenItBegins(Bandit):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0], {"process": os.getpid()}


class ShowsOnce(Bandit):
    """Shows what no seed determines in one observation, and never again."""

    def outcome(self) -> Any:
        return np.full(2, (self.steps == 2) * (os.getpid() % 1000) / 1000, np.float32), 1.0, False, False, {}


class HasASecret(Bandit):
    """Draws its secret from a generator that everybody shares, and does not show it for long."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.secret = random.random()
        return super().reset(seed=seed)

    def outcome(self) -> Any:
        return np.zeros(2, np.float32), self.secret * (self.steps > 50), False, False, {}


class SharesNumpysGenerator(HasASecret):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.secret = np.random.rand()
        return Bandit.reset(self, seed=seed)


UNDETERMINED = [
    PaysByTheClock,
    PaysByItsProcess,
    TellsByTheClock,
    TellsMuch,
    TellsWhenItBegins,
    ShowsOnce,
    HasASecret,
    SharesNumpysGenerator,
]


def crash(envs: AsyncVectorEnv) -> Any:
    """Has the last environment take its process along."""
    actions = np.zeros(envs.num_envs, np.int64)
    actions[-1] = DIE
    return envs.step(actions)


@pytest.mark.parametrize("kind", UNDETERMINED)
def test_hidden_randomness_is_told(kind: type[Bandit]) -> None:
    with AsyncVectorEnv([kind, Bandit, Bandit], num_workers=1, context="fork", on_failure="restart") as envs:
        envs.reset(seed=0)
        for _ in range(4):
            envs.step([0, 0, 0])
        *_, truncated, infos = crash(envs)
        assert truncated.tolist() == infos["restarted"].tolist() == [True, False, True]
        assert "could not be rebuilt" in infos["restart_cause"][0]
        assert envs.rebuilt.tolist() == [0, 1, 0]


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=str)
def test_it_is_told_in_every_mode(mode: AutoresetMode) -> None:
    fns = [PaysByItsProcess, partial(Bandit, 3), Bandit]
    with AsyncVectorEnv(fns, num_workers=1, context="fork", autoreset_mode=mode, on_failure="restart") as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step([0, 0, 0])
        if mode is AutoresetMode.DISABLED:
            envs.reset(options={"reset_mask": np.array([False, True, False])})
        else:
            for _ in range(4):
                envs.step([1, 1, 0])
        assert crash(envs)[4]["restarted"].tolist() == [True, False, True]
        assert envs.rebuilt.tolist() == [0, 1, 0]


def test_it_is_told_where_results_come_one_by_one() -> None:
    fns = [PaysByItsProcess, Bandit, Bandit]
    with AsyncVectorEnv(fns, num_workers=1, context="fork", on_failure="restart", batch_size=1) as envs:
        envs.async_reset(seed=0)
        for _ in range(3):
            envs.recv()
        envs.send(np.array([0, 0, DIE]))  # the first two are done when the third takes the process along
        assert [envs.recv()[4].get("restarted", [False])[0] for _ in range(3)] == [False, False, True]
        envs.send(np.array([0, 0]), [0, 1])
        told = {int(infos["env_id"][0]): "restarted" in infos for infos in (envs.recv()[4] for _ in range(2))}
        assert told == {0: True, 1: False}
        assert envs.rebuilt.tolist() == [0, 1, 0]


class TellsAllKinds(Bandit):
    """Deterministic, with infos of every kind: packed, carried, empty, of changing keys and types."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0], {"start": np.float32(0.5), "flag": True, "none": None}

    def outcome(self) -> Any:
        number = self.steps
        infos: list[dict[str, Any]] = [
            {},
            {"a": 1, "b": 2.5, "c": np.bool_(True), "d": np.int8(number % 100)},
            {"a": number, "flag": number % 2 == 0},
            {"text": "x" * number, "array": np.arange(number), "deep": {"list": [1, (2.0, None)], "set": {"p", "q"}}},
            {"large": 2**80},
            {f"key {number}": number},
            {"nan": float("nan"), "array": np.array([np.nan, 1.0])},
            {"object": partial(int, number), "generator": np.random.SeedSequence(number)},
        ]
        return np.zeros(2, np.float32), np.nan, False, self.steps >= self.length, infos[number % len(infos)]


def test_what_is_determined_goes_on_without_a_trace_whatever_it_tells() -> None:
    fns = [partial(TellsAllKinds, 30), TellsAllKinds, Bandit]
    with AsyncVectorEnv(fns, num_workers=1, context="fork", on_failure="restart", max_restarts=None) as envs:
        envs.reset(seed=0)
        for crashes in range(1, 13):
            for _ in range(crashes % 5):
                envs.step([0, 1, 0])
            *_, infos = crash(envs)
            assert infos["restarted"].tolist() == [False, False, True], infos.get("restart_cause")
            envs.step([0, 0, 0])  # the culprit begins another episode
            assert envs.rebuilt.tolist() == [crashes, crashes, 0]


def test_spawned_processes_come_to_the_same_numbers() -> None:
    fns = [TellsAllKinds, TellsAllKinds, Bandit]
    with AsyncVectorEnv(fns, num_workers=1, context="spawn", on_failure="restart") as envs:
        envs.reset(seed=0)
        for _ in range(9):
            envs.step([0, 1, 0])
        assert crash(envs)[4]["restarted"].tolist() == [False, False, True]


def test_digests_tell_values_apart_and_do_not_depend_on_how_they_are_kept() -> None:
    values = [None, 0, False, 0.0, -0.0, "", b"", [], (), {}, "0", [0], [[0]], [0, 0], {"a": 0}, {"a": {"a": 0}}, {0}]
    values += [np.zeros(2), np.zeros((2, 1)), np.zeros(2, np.float32), np.float32(0), np.array([None]), 1j, {1, 0}]
    digests = [value_digest(value) for value in values]
    assert len(set(digests)) == len(values)
    assert UNKNOWN not in digests
    assert value_digest({"p", "q", "r"}) == value_digest({"r", "q", "p"})
    assert value_digest(threading.Lock()) == UNKNOWN
    endless: list[Any] = []
    endless.append(endless)
    assert value_digest(endless) == UNKNOWN
    assert info_digest({"a": 1, "b": 2}) != info_digest({"b": 2, "a": 1}) != info_digest({"a": 1.0, "b": 2})
