"""Small environments for tests: deterministic given a seed, importable by any worker, free of pytest.

- `CounterEnv` says in its observation who it is, which episode and step it is in and which action it got.
- `TroubleEnv` is a `CounterEnv` that raises, hangs or dies on command.
- `PlaybackEnv` plays back a list of prepared results and keeps the actions it receives.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

EnvFn = Callable[[], "gym.Env[Any, Any]"]
Ending = Literal["terminated", "truncated", "both", "never"]
Observation = npt.NDArray[np.int64]
ENDINGS: tuple[Ending, ...] = ("terminated", "truncated", "both")
DRAW_LIMIT = 1_000_000


@dataclass(frozen=True)
class CounterConfig:
    """How one `CounterEnv` behaves.

    Attributes:
        index: the first number of every observation.
        length: the step of an episode that ends it.
        ending: which flag (or both) that step raises.
        reuse_buffer: return the same array object each time, overwritten in place.
        close_log: a folder in which `close()` appends a line to the file named after the index.
    """

    index: int = 0
    length: int = 3
    ending: Ending = "terminated"
    reuse_buffer: bool = False
    close_log: str | None = None


class CounterEnv(gym.Env[Observation, np.int64]):
    """Observation int64[5] = (index, episode, step, last action or -1, a number drawn from np_random).

    Everything a vector env could get wrong shows: an extra or missing reset in the episode number and in the
    drawn number, a skipped or repeated step in the step number, a swapped action in the action.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(self, config: CounterConfig | None = None, render_mode: str | None = None) -> None:
        self.config = config or CounterConfig()
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-1, DRAW_LIMIT, (5,), np.int64)
        self.action_space = spaces.Discrete(10)
        self.index = self.config.index
        self.episode = 0
        self.steps = 0
        self.tag: Any = "untouched"
        self.actions: list[Any] = []
        self.seeds: list[Any] = []
        self.options: list[Any] = []
        self._buffer = np.zeros(5, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start the next episode; the info holds its number and whether a seed was given."""
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.options.append(None if options is None else dict(options))
        if options is not None:
            options["seen_by"] = self.index  # a careless environment; nobody else may notice
        self.episode += 1
        self.steps = 0
        return self._observe(-1), {"episode": self.episode, "seeded": seed is not None}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Count one step; reward = index + step / 8; the info holds the step, half of it, and a nested copy."""
        self.actions.append(action)
        self.steps += 1
        done = self.steps >= self.config.length
        terminated = done and self.config.ending in ("terminated", "both")
        truncated = done and self.config.ending in ("truncated", "both")
        info = {"step": self.steps, "half": self.steps / 2, "nested": {"index": self.index}}
        return self._observe(int(action)), self.index + self.steps / 8, terminated, truncated, info

    def render(self) -> npt.NDArray[np.uint8]:
        """Return a uint8[2, 2, 3] frame filled with the index."""
        return np.full((2, 2, 3), self.index, np.uint8)

    def close(self) -> None:
        """Append a line to the close log, if there is one."""
        if self.config.close_log is not None:
            with Path(self.config.close_log, str(self.index)).open("a") as log:
                log.write("closed\n")

    def describe(self, greeting: str, *, mark: str = "!") -> str:
        """Return a sentence made of both arguments and the index: a method to `call`."""
        return f"{greeting} {self.index}{mark}"

    def process_id(self) -> int:
        """Return the process this environment runs in."""
        return os.getpid()

    def _observe(self, action: int) -> Observation:
        draw = int(self.np_random.integers(DRAW_LIMIT))
        values = (self.index, self.episode, self.steps, action, draw)
        if not self.config.reuse_buffer:
            return np.array(values, np.int64)
        self._buffer[:] = values
        return self._buffer


class Command(IntEnum):
    """Actions of a `TroubleEnv` that are orders; the actions 0 to 9 are ordinary."""

    RAISE = 10
    RAISE_ODD = 11
    RAISE_UNPICKLABLE = 12
    HANG = 13
    KILL = 14
    EXIT = 15
    CRASH = 16


EXIT_CODE = 41


class OddError(Exception):
    """An exception that cannot be rebuilt from its `args`, as many in the wild."""

    def __init__(self, first: str, *, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.second = second


class TroubleEnv(CounterEnv):
    """A `CounterEnv` that obeys a `Command` given as action, as reset option "command", or by `call("obey", ...)`.

    A hanging environment waits until somebody opens its fifo for writing, so tests need no sleeps.
    """

    def __init__(self, config: CounterConfig | None = None, fifo: str | None = None) -> None:
        super().__init__(config)
        self.action_space = spaces.Discrete(len(Command) + 10)
        self.fifo = fifo

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Obey the option "command" if there is one, then reset."""
        if options is not None and "command" in options:
            self.obey(options["command"])
        return super().reset(seed=seed, options=options)

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Obey the action if it is a command, then step."""
        if action >= min(Command):
            self.obey(int(action))
        return super().step(action)

    def obey(self, command: int) -> str:
        """Carry out one command and return its name, if this process survives it."""
        match Command(command):
            case Command.RAISE:
                raise ZeroDivisionError(f"environment {self.index} was told to raise")
            case Command.RAISE_ODD:
                raise OddError(f"odd environment {self.index}", second=2)
            case Command.RAISE_UNPICKLABLE:
                raise RuntimeError(f"environment {self.index} holds a lock", threading.Lock())
            case Command.HANG:
                wait_for_writer(self.fifo)
            case Command.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Command.EXIT:
                os._exit(EXIT_CODE)
            case Command.CRASH:
                faulthandler.disable()  # a traceback of what was ordered helps nobody
                ctypes.string_at(0)
        return Command(command).name


def wait_for_writer(fifo: str | None) -> None:
    """Block until somebody opens the fifo for writing."""
    if fifo is None:
        raise ValueError("this environment was made without a fifo: it cannot hang")
    with Path(fifo).open():
        pass


class LotteryEnv(CounterEnv):
    """A `CounterEnv` whose constructor draws from the global generators, as randomised environments often do."""

    def __init__(self, config: CounterConfig | None = None) -> None:
        super().__init__(config)
        self.lots = (float(np.random.random()), random.random())


class BrokenConstructorEnv(CounterEnv):
    """A `CounterEnv` that cannot be built: its constructor obeys a `Command` and does not come back."""

    def __init__(self, config: CounterConfig | None = None, command: Command = Command.RAISE) -> None:
        super().__init__(config)
        TroubleEnv(config).obey(command)


@dataclass(frozen=True)
class Frame:
    """One prepared result; `reset` returns the observation and the info, `step` all five."""

    observation: Any
    reward: Any = 0.0
    terminated: Any = False
    truncated: Any = False
    info: Any = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """One prepared result returned as it is, whatever the API says."""

    value: Any


class PlaybackEnv(gym.Env[Any, Any]):
    """Plays back its frames, one a `reset` or `step`, the last for ever; keeps each received action in `received`."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        frames: Sequence[Frame | Raw],
        action_space: spaces.Space[Any] | None = None,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = spaces.Discrete(2) if action_space is None else action_space
        self.frames = list(frames)
        self.played = 0
        self.received: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Play the next frame as the result of a reset."""
        super().reset(seed=seed, options=options)
        frame = self._next_frame()
        return frame.value if isinstance(frame, Raw) else (frame.observation, frame.info)

    def step(self, action: Any) -> Any:
        """Keep the action and play the next frame as the result of a step."""
        self.received.append(action)
        frame = self._next_frame()
        if isinstance(frame, Raw):
            return frame.value
        return frame.observation, frame.reward, frame.terminated, frame.truncated, frame.info

    def _next_frame(self) -> Frame | Raw:
        frame = self.frames[min(self.played, len(self.frames) - 1)]
        self.played += 1
        return frame


def counter_fns(num_envs: int, *, reuse_buffer: bool = False, close_log: str | None = None) -> list[EnvFn]:
    """Return `num_envs` makers of counters that differ in episode length (1 to 4) and in how they end."""
    return [
        partial(
            CounterEnv,
            CounterConfig(
                index=index,
                length=1 + (index + 2) % 4,
                ending=ENDINGS[index % 3],
                reuse_buffer=reuse_buffer,
                close_log=close_log,
            ),
        )
        for index in range(num_envs)
    ]


def endless_fns(num_envs: int) -> list[EnvFn]:
    """Return `num_envs` makers of counters whose episodes never end."""
    return [partial(CounterEnv, CounterConfig(index=index, ending="never")) for index in range(num_envs)]


def trouble_fns(num_envs: int, *, fifo: str | None = None, close_log: str | None = None) -> list[EnvFn]:
    """Return `num_envs` makers of endless environments that obey commands."""
    return [
        partial(TroubleEnv, CounterConfig(index=index, ending="never", close_log=close_log), fifo)
        for index in range(num_envs)
    ]
