"""An environment that fails on command, in every way an environment can fail."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

EXIT_CODE = 41
HUGE = 20_000_000
LIMIT = 1_000_000


class Fault(IntEnum):
    """Actions that are orders to fail; the actions 0 to 9 are ordinary."""

    RAISE = 10
    EXIT = 11
    KILL = 12
    CRASH = 13
    STOP = 14
    LOOP = 15
    HOLD_GIL = 16
    BAD_SHAPE = 17
    BAD_DTYPE = 18
    BAD_KEY = 19
    NAN = 20
    BAD_REWARD = 21
    UNPICKLABLE = 22
    HUGE_INFO = 23
    WAIT = 24
    FORK = 25
    FORK_AND_RETURN = 26


@dataclass(frozen=True)
class Habits:
    """How one environment behaves: its number, the length of its episodes, the fifo it waits for when told to."""

    index: int = 0
    length: int = 8
    fifo: str = ""


class FaultyEnv(gymnasium.Env[Any, Any]):
    """Counts its steps, draws numbers, and obeys a `Fault` given as action, reset option or call.

    Observations: ``count`` int64[4] = (index, episode, step, last action or -1), ``draw`` float32[3] from np_random.
    The number of an episode is drawn, too.
    """

    def __init__(self, habits: Habits) -> None:
        self.habits, self.index = habits, habits.index
        self.observation_space = spaces.Dict(
            {"count": spaces.Box(-1, LIMIT, (4,), np.int64), "draw": spaces.Box(0, 1, (3,), np.float32)}
        )
        self.action_space = spaces.Discrete(max(Fault) + 1)
        self.episode = self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the next episode, unless the option "fault" says otherwise."""
        super().reset(seed=seed)
        fault = Fault(options["fault"]) if options and "fault" in options else None
        self.suffer(fault)
        self.episode, self.steps = int(self.np_random.integers(LIMIT)), 0
        observation, info = self._observation(-1), {"episode": self.episode}
        spoil(fault, observation, info)
        return observation, info

    def step(self, action: Any) -> Any:
        """Count a step, unless the action is a fault."""
        fault = Fault(int(action)) if action >= min(Fault) else None
        self.suffer(fault)
        self.steps += 1
        observation, info = self._observation(int(action)), {"step": self.steps, "half": self.steps / 2}
        reward: Any = "much" if fault is Fault.BAD_REWARD else self.index + self.steps / 8
        spoil(fault, observation, info)
        return observation, reward, False, self.steps >= self.habits.length, info

    def suffer(self, fault: int | None) -> str:
        """Fail in place, if this is a fault of that kind, and return a word otherwise."""
        if fault in _SUFFERING:
            _SUFFERING[Fault(fault)](self.habits)
        return "unharmed"

    def process_id(self) -> int:
        """The process this environment runs in."""
        return os.getpid()

    def _observation(self, action: int) -> dict[str, Any]:
        count = np.array([self.index, self.episode, self.steps, action], np.int64)
        return {"count": count, "draw": self.np_random.random(3, np.float32)}


def spoil(fault: Fault | None, observation: dict[str, Any], info: dict[str, Any]) -> None:
    """Make an environment's output wrong, in place, if this is a fault of that kind."""
    if fault is Fault.BAD_SHAPE:
        observation["draw"] = observation["draw"][:1]
    elif fault is Fault.BAD_DTYPE:
        observation["count"] = observation["count"] + 0.5
    elif fault is Fault.BAD_KEY:
        observation["drawn"] = observation.pop("draw")
    elif fault is Fault.NAN:
        observation["draw"][1] = np.nan
    elif fault is Fault.UNPICKLABLE:
        info["lock"] = threading.Lock()
    elif fault is Fault.HUGE_INFO:
        info["huge"] = "x" * HUGE


def _raise(habits: Habits) -> None:
    raise ZeroDivisionError(f"environment {habits.index} was told to raise")


def _loop(_: Habits) -> None:
    while True:
        pass


def _crash(_: Habits) -> None:
    faulthandler.disable()  # a traceback of what was ordered helps nobody
    ctypes.string_at(0)


def _wait(habits: Habits) -> None:
    with Path(habits.fifo).open():
        pass


_SOAK = os.getpid()


def _fork(_: Habits, *, returns: bool = False) -> None:
    """Start a child as libraries do, which ends properly or, as in a careless environment, goes on as its parent.

    But not in the soak's own process, where the environments to compare with live.
    """
    in_worker = os.getpid() != _SOAK
    child = os.fork()
    if child == 0 and not (returns and in_worker):
        os._exit(0)
    if child != 0:
        os.waitpid(child, 0)


def _send(number: signal.Signals, _: Habits) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0)  # a stopped process goes on here


_SUFFERING: dict[Fault, Callable[[Habits], Any]] = {
    Fault.RAISE: _raise,
    Fault.EXIT: lambda _: os._exit(EXIT_CODE),
    Fault.KILL: partial(_send, signal.SIGKILL),
    Fault.CRASH: _crash,
    Fault.STOP: partial(_send, signal.SIGSTOP),
    Fault.LOOP: _loop,
    Fault.HOLD_GIL: lambda _: ctypes.PyDLL(None).sleep(1000),
    Fault.WAIT: _wait,
    Fault.FORK: _fork,
    Fault.FORK_AND_RETURN: partial(_fork, returns=True),
}


class RecoveringEnv(FaultyEnv):
    """Obeys an order to fail in `reset`, or when it is made again, only once: a mark outlives the process.

    An order for its next constructor lies in the file ``made-<index>`` of the folder ``marks``.
    """

    def __init__(self, habits: Habits, marks: str) -> None:
        super().__init__(habits)
        order = Path(marks, f"made-{habits.index}")
        with suppress(FileNotFoundError):
            fault = int(order.read_text())
            order.unlink()
            self.suffer(fault)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the next episode, unless the option "fault" says otherwise and the file "mark" is still there."""
        if options and "mark" in options:
            try:
                Path(options["mark"]).unlink()
            except FileNotFoundError:
                options = None
        return super().reset(seed=seed, options=options)


def recovering_fns(num_envs: int, marks: str) -> list[Callable[[], FaultyEnv]]:
    """As `faulty_fns`, of environments that fail once when told to."""
    return [partial(RecoveringEnv, Habits(index, 5 + index), marks) for index in range(num_envs)]


def faulty_fns(num_envs: int, fifo: str = "", **kinds: Any) -> list[Callable[[], FaultyEnv]]:
    """Makers of environments whose episodes differ in length."""
    return [partial(FaultyEnv, Habits(index, 5 + index, fifo), **kinds) for index in range(num_envs)]
