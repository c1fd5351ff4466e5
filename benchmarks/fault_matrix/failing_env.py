"""An environment that fails once, in one way, at one step. Read by peers' Pythons: needs Gymnasium only."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import spaces

NUM_ENVS = 6
FAILING = 4
FAIL_AT = 6
LIMIT = 1_000_000.0
FOREVER = 100_000.0

Result = tuple[Any, float, bool, bool, dict[str, Any]]


@dataclass(frozen=True)
class Plan:
    """Which environment this is, how it fails if it is the one that does, and the file that says that it has failed."""

    index: int
    fault: str
    marker: str


@final
class FailingEnv(gymnasium.Env[Any, Any]):
    """Observes its index, its steps and two random numbers; number `FAILING` fails at its step `FAIL_AT`, once.

    Actions change nothing, and episodes do not end: a row depends on nothing but seed, index and number of the step.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.observation_space = spaces.Box(-LIMIT, LIMIT, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Result:  # noqa: ARG002  actions change nothing
        """Count a step, or fail."""
        self.steps += 1
        result: Result = (self._observe(), float(self.np_random.random()), False, False, {})
        if self.plan.index != FAILING or self.steps != FAIL_AT or self.plan.fault not in FAILURES:
            return result
        if not self._is_first_time():
            return result
        return FAILURES[self.plan.fault](result)

    def _observe(self) -> Any:
        return np.array([self.plan.index, self.steps, *self.np_random.random(2)], np.float32)

    def _is_first_time(self) -> bool:
        """Whether nobody, in whatever process, has failed yet; writes down when."""
        with suppress(FileExistsError), Path(self.plan.marker).open("x") as file:
            file.write(repr(time.monotonic()))
            return True
        return False


def _raise(_: Result) -> Result:
    raise RuntimeError("the simulator has failed")


def _hang(result: Result) -> Result:
    time.sleep(FOREVER)
    return result


def _kill(result: Result) -> Result:
    os.kill(os.getpid(), signal.SIGKILL)
    return result


def _stop(result: Result) -> Result:
    os.kill(os.getpid(), signal.SIGSTOP)
    return result


def _spoil(result: Result) -> Result:
    observation = result[0].copy()
    observation[2] = np.nan
    return (observation, float("nan"), *result[2:])


def _shorten(result: Result) -> Result:
    return (result[0][:3], *result[1:])


def _shorten_to_one(result: Result) -> Result:
    return (result[0][2:3], *result[1:])


def _fork(result: Result) -> Result:
    os.fork()
    return result


FAILURES: dict[str, Callable[[Result], Result]] = {
    "kill": _kill,
    "exception": _raise,
    "hang": _hang,
    "stop": _stop,
    "nan": _spoil,
    "nan-checked": _spoil,
    "shape": _shorten,
    "shape-one": _shorten_to_one,
    "fork": _fork,
    "caller-killed-hang": _hang,
}
