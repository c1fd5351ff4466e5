"""A wait that expires loses nothing, by every start method and with the hanging environment anywhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from process_fleets import NUM_ENVS, process_fleet

from envfleet.errors import ResetNeeded
from envfleet.testing import TimeoutsContract
from envfleet.testing.envs import CounterConfig, CounterEnv, EnvFn, wait_for_writer
from envfleet.testing.timeouts import make_fifo, release
from envfleet.vector import AsyncVectorEnv

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


class TestFork(TimeoutsContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=2, **kwargs)


class TestForkFirstWorkerHangs(TestFork):
    hanging = 0


class TestOneWorker(TimeoutsContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=1, **kwargs)


class TestCallerWorks(TimeoutsContract):
    hanging = 4

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=2, caller_works=True, **kwargs)


class TestSpawn(TimeoutsContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="spawn", num_workers=2, **kwargs)


class InterruptionError(Exception):
    """Raised by a signal, anywhere in the caller, as a KeyboardInterrupt is."""


class InterruptingEnv(CounterEnv):
    """Interrupts its caller when the action is 9, or when asked, and does not return before it is released."""

    def __init__(self, index: int, caller: int, fifo: str) -> None:
        super().__init__(CounterConfig(index=index, ending="never"))
        self.caller, self.fifo = caller, fifo

    def step(self, action: Any) -> Any:
        if action == 9:
            self.interrupt()
        return super().step(action)

    def interrupt(self) -> None:
        os.kill(self.caller, signal.SIGUSR1)
        wait_for_writer(self.fifo)


@pytest.fixture
def interruptible() -> Any:
    def interrupt(*_: object) -> NoReturn:
        raise InterruptionError

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_step_returns_nothing_stale(tmp_path: Path) -> None:
    fifo = make_fifo(tmp_path)
    fns = [partial(InterruptingEnv, index, os.getpid(), fifo) for index in range(NUM_ENVS)]
    with process_fleet(fns) as envs:
        for episode in range(1, 6):
            assert envs.reset()[0][:, 1:3].tolist() == [[episode, 0]] * NUM_ENVS
            assert envs.step(np.full(NUM_ENVS, 3))[0][:, 2:4].tolist() == [[1, 3]] * NUM_ENVS
            with pytest.raises(InterruptionError):
                envs.step(np.array([1] * (NUM_ENVS - 1) + [9]))
            release(fifo)
            with pytest.raises(ResetNeeded):
                envs.step(np.full(NUM_ENVS, 4))


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_call_returns_nothing_stale(tmp_path: Path) -> None:
    fifo = make_fifo(tmp_path)
    fns = [partial(InterruptingEnv, index, os.getpid(), fifo) for index in range(NUM_ENVS)]
    with process_fleet(fns) as envs:
        envs.reset()
        for step in range(1, 6):
            with pytest.raises(InterruptionError):
                envs.call("interrupt", indices=[NUM_ENVS - 1])
            release(fifo)
            assert envs.call("describe", "you") == tuple(f"you {index}!" for index in range(NUM_ENVS))
            assert envs.step(np.full(NUM_ENVS, 3))[0][:, 2].tolist() == [step] * NUM_ENVS
