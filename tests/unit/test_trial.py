"""Unknown environments are measured in a process of their own: they can end, crash or hang it, and nobody else."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import active_children, current_process
from typing import Any

import pytest
from threaded import a_thread

import envfleet
from envfleet import _trial, make
from envfleet._trial import measure_apart
from envfleet.testing.envs import CounterConfig, CounterEnv
from envfleet.vector import AsyncVectorEnv, SyncVectorEnv


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "usable_cores", lambda: 2)


class MenaceEnv(CounterEnv):
    """Does something terrible the first time it is used, unless that is where the fleet is."""

    def __init__(self, deed: Callable[[], Any], where: str) -> None:
        super().__init__(CounterConfig(ending="never"))
        self.deed, self.where = deed, where
        self.harmless = current_process().name != "envfleet-trial"
        self._do("make")

    def _do(self, where: str) -> None:
        if where == self.where and not self.harmless:
            self.deed()

    def reset(self, **kwargs: Any) -> Any:
        self._do("reset")
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self._do("step")
        return super().step(action)

    def close(self) -> None:
        self._do("close")


def end() -> None:
    os._exit(3)


def crash() -> None:
    faulthandler.disable()
    ctypes.string_at(0)


def hang() -> None:
    time.sleep(1000)


def leave() -> None:
    sys.exit(5)


@pytest.mark.parametrize(
    ("where", "deed", "text"),
    [
        *((where, end, "exit code 3") for where in ("make", "reset", "step", "close")),
        ("step", crash, "exit code -11"),
        ("make", hang, "after 1 s"),
        ("step", hang, "after 1 s"),
    ],
)
def test_one_that_ends_or_hangs_where_it_is_measured_runs_in_processes(
    monkeypatch: pytest.MonkeyPatch, where: str, deed: Callable[[], Any], text: str
) -> None:
    if deed is hang:
        monkeypatch.setattr(_trial, "TIME_LIMIT", 1.0)
    with envfleet.make_vec(lambda: MenaceEnv(deed, where), 2) as envs:
        assert type(envs) is AsyncVectorEnv
        assert len(envs.processes) == envs.num_workers  # none of them in the caller's process
        assert text in envs.plan
        assert "when it was measured" in envs.plan
        envs.reset(seed=0)
        assert envs.step([0, 0])[0][:, 2].tolist() == [1, 1]
    assert not [child for child in active_children() if child.name == "envfleet-trial"]


def test_one_that_exits_the_interpreter_does_not_end_the_program() -> None:
    with envfleet.make_vec(lambda: MenaceEnv(leave, "step"), 2) as envs:
        assert "when it was measured" in envs.plan


def test_a_program_with_threads_measures_in_a_process_without() -> None:
    caller = os.getpid()

    def deed() -> None:
        assert threading.active_count() == 1
        assert os.getppid() == caller

    with a_thread(), envfleet.make_vec(lambda: MenaceEnv(deed, "step"), 2) as envs:
        assert "measured" not in envs.plan


def test_what_cannot_be_sent_there_is_not_measured() -> None:
    lock = threading.Lock()

    class LockedEnv(CounterEnv):
        def step(self, action: Any) -> Any:
            with lock:
                return super().step(action)

    with a_thread(), envfleet.make_vec(LockedEnv, 2) as envs:
        assert type(envs) is SyncVectorEnv
        assert "this program has threads" in envs.plan
        envs.reset()


class CompilingEnv(CounterEnv):
    """Compiles something at its first steps, in the third of which it is another thing."""

    def __init__(self) -> None:
        super().__init__(CounterConfig(ending="never"))
        self.total = 0

    def step(self, action: Any) -> Any:
        self.total += 1
        if self.total in (1, 3, 20):
            end = time.process_time() + 0.2
            while time.process_time() < end:
                pass
        return super().step(action)


def test_time_to_compile_is_no_step_time() -> None:
    assert measure_apart(CompilingEnv).wall < 2e-3
