"""check_nan=True: NaN in an observation or a reward is a failure, wherever environments run; by default it is data."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from garbage import block
from gymnasium import spaces

from envfleet.errors import InvalidOutputError
from envfleet.vector import AsyncVectorEnv, FleetVectorEnv, SyncVectorEnv

BACKENDS: dict[str, Callable[..., FleetVectorEnv]] = {
    "sync": SyncVectorEnv,
    "process": partial(AsyncVectorEnv, context="fork", num_workers=2),
}
BAD = [0, 1, 0]
# float32 and float64 are looked at by compiled code, others by Python.
DTYPES = [np.float16, np.float32, np.float64]


class GappyEnv(gymnasium.Env[Any, Any]):
    """Returns NaN where it is told to by the action 1; its third step is its last."""

    action_space = spaces.Discrete(2)

    def __init__(self, where: str, dtype: Any) -> None:
        self.where, self.dtype, self.steps = where, dtype, 0
        self.observation_space = spaces.Box(-9, 9, (2,), dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        return self._observation(bad=bool(options)), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = self.dtype(np.nan if action and self.where == "reward" else 1.5)
        observation = self._observation(bad=bool(action) and self.where == "observation")
        return observation, float(reward) if self.dtype is np.float64 else reward, self.steps == 3, False, {}

    def _observation(self, *, bad: bool) -> Any:
        return np.array([self.steps, np.nan if bad else 0], self.dtype)


def make(backend: str, where: str, dtype: Any, **kwargs: Any) -> FleetVectorEnv:
    return BACKENDS[backend]([partial(GappyEnv, where, dtype)] * 3, **kwargs)


MATRIX = [
    pytest.mark.parametrize("backend", BACKENDS),
    pytest.mark.parametrize("where", ["observation", "reward"]),
    pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__),
]


def in_the_matrix(test: Any) -> Any:
    for mark in MATRIX:
        test = mark(test)
    return test


# In the middle of an episode rows are published by compiled code, at its end by Python.
@pytest.mark.parametrize("before", [0, 2], ids=["middle", "end"])
@in_the_matrix
def test_it_is_refused_by_name(backend: str, where: str, dtype: Any, before: int) -> None:
    with make(backend, where, dtype, check_nan=True) as envs:
        envs.reset()
        for _ in range(before):
            envs.step([0, 0, 0])
        with pytest.raises(InvalidOutputError, match=rf"{where}: expected no NaN \(check_nan=True\)") as caught:
            envs.step(BAD)
        assert caught.value.env_indices == (1,)
        envs.reset()
        assert envs.step([0, 0, 0])[1].tolist() == [1.5] * 3


@in_the_matrix
def test_it_restarts_one_environment(backend: str, where: str, dtype: Any) -> None:
    with make(backend, where, dtype, check_nan=True, on_failure="restart") as envs:
        envs.reset()
        envs.step([0, 0, 0])
        observations, rewards, terminated, truncated, infos = envs.step(BAD)
        assert truncated.tolist() == infos["restarted"].tolist() == [False, True, False]
        assert f"{where}: expected no NaN" in infos["restart_cause"][1]
        assert rewards.tolist() == [1.5, 0.0, 1.5]
        assert observations[:, 0].tolist() == [2, 1, 2]
        assert not terminated.any()


@in_the_matrix
def test_by_default_it_is_data(backend: str, where: str, dtype: Any) -> None:
    with make(backend, where, dtype) as envs:
        envs.reset()
        observations, rewards, *_ = envs.step(BAD)
        found = rewards if where == "reward" else observations[:, 1]
        assert np.isnan(found).tolist() == [False, True, False]


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_is_refused_in_a_reset(backend: str) -> None:
    with make(backend, "observation", np.float32, check_nan=True) as envs:
        with pytest.raises(InvalidOutputError, match=r"reset\(\) .*expected no NaN") as caught:
            envs.reset(options=[None, {"bad": True}, None])
        assert caught.value.env_indices == (1,)


class SpoilingEnv(GappyEnv):
    """Writes NaN over the last observation in its row and ends its process; told to by the action 1."""

    def step(self, action: Any) -> Any:
        if action:
            self._spoil(self._observation(bad=False).tobytes())
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

    def _observation(self, *, bad: bool) -> Any:
        return np.array([self.steps + 0.1234567, np.nan if bad else 7.654321], self.dtype)

    def _spoil(self, shown: bytes) -> None:
        start, size = block()
        found = ctypes.string_at(start, size).index(shown)
        ctypes.memmove(start + found, np.full(2, np.nan, self.dtype).tobytes(), len(shown))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_what_a_lost_process_leaves_in_a_row_is_not_taken_for_an_observation(mode: str) -> None:
    fns = [partial(SpoilingEnv, "observation", np.float64)]
    fleet = partial(BACKENDS["process"], fns, check_nan=True, on_failure="restart", autoreset_mode=mode)
    with fleet(max_restarts=1) as envs:
        envs.reset()
        last = envs.step([0])[0]
        observations, _, _, truncated, infos = envs.step([1])
        assert truncated.tolist() == infos["restarted"].tolist() == [True]
        assert infos["restart_cause"] == ["worker 0 was killed by SIGKILL while environment 0 was at work"]
        shown = infos["final_obs"] if mode == "SameStep" else observations
        assert shown[0].tolist() == last[0].tolist()
