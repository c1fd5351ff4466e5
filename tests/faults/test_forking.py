"""Environments that fork: a copy of a worker that comes back to its work is ended, and its environment is named."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fleets import SOON, Oracle
from processes import still_running
from soaking.faulty import FaultyEnv, Habits

from envfleet import AsyncVectorEnv

VICTIM = 1


class ForkingEnv(FaultyEnv):
    """Forks somewhere, and lets the copy go on as if it were the worker; the copy says when it is about to."""

    def __init__(self, habits: Habits, where: str, marks: str) -> None:
        self.where, self.marks = where, marks
        super().__init__(habits)
        self.fork("make")

    def fork(self, where: str) -> None:
        if self.index != VICTIM or where != self.where:
            return
        self.where = ""  # once
        libc = ctypes.CDLL(None)
        pid = libc.fork() if where == "native" else os.fork()
        if pid == 0:
            Path(self.marks, str(os.getpid())).touch()
            if "late" in where:
                time.sleep(0.3)
            if "exit" in where:
                sys.exit(3)

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        self.fork("reset")
        return result

    def step(self, action: Any) -> Any:
        result = super().step(action)
        for where in ("step", "native", "late", "exit"):
            self.fork(where)
        return result


def copies(marks: Path) -> list[int]:
    """Wait until the copies have come to life and to their end; returns their pids."""
    deadline = time.monotonic() + SOON
    while not (pids := [int(path.name) for path in marks.iterdir()]):
        assert time.monotonic() < deadline
    assert still_running(pids, SOON) == []
    return pids


@pytest.mark.parametrize(
    ("where", "context"),
    [*((where, "fork") for where in ("step", "native", "late", "exit", "reset")), ("step", "spawn")],
)
def test_a_copy_that_comes_back_is_ended_and_its_environment_named(where: str, context: str, tmp_path: Path) -> None:
    fns = [partial(ForkingEnv, Habits(index, 5 + index), where, str(tmp_path)) for index in range(4)]
    envs = AsyncVectorEnv(fns, context=context, num_workers=2, on_failure="restart")

    def play_and_close() -> None:
        envs.reset(seed=0)
        Oracle(4).assert_steps(envs, 20)
        assert len(copies(tmp_path)) == 1
        envs.close()

    with pytest.warns(RuntimeWarning, match=r"Environment 1 forked.*os\._exit") as warned:
        play_and_close()
    assert len(warned) == 1
    assert envs.rebuilt.tolist() == [0] * 4


def test_a_copy_that_comes_back_from_a_constructor_is_ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fns = [partial(ForkingEnv, Habits(index, 5 + index), "make", str(tmp_path)) for index in range(4)]
    with AsyncVectorEnv(fns, context="fork", num_workers=2) as envs:
        envs.reset(seed=0)
        Oracle(4).assert_steps(envs, 20)
        copies(tmp_path)
    assert "the constructor of environment 1 forked" in capfd.readouterr().err


class HelpedEnv(FaultyEnv):
    """Has a process of its own compute something in each step, as it should be done."""

    def step(self, action: Any) -> Any:
        queue = multiprocessing.get_context("fork").SimpleQueue()
        helper = multiprocessing.get_context("fork").Process(target=queue.put, args=(3,))
        helper.start()
        assert queue.get() == 3
        helper.join()
        assert helper.exitcode == 0
        queue.close()
        if (pid := os.fork()) == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        return super().step(action)


def test_processes_that_end_by_themselves_are_left_alone() -> None:
    fns = [partial(HelpedEnv, Habits(index, 5 + index)) for index in range(4)]
    with AsyncVectorEnv(fns, context="fork", num_workers=2, daemon=False) as envs:
        envs.reset(seed=0)
        Oracle(4).assert_steps(envs, 3)
