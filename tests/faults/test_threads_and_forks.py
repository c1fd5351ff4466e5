"""Callers that have threads: workers, and those that take their places, are copies of a process that has none."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from fleets import Oracle
from pooled import PooledEnv, compute, end_pool
from processes import still_running
from soaking.faulty import Fault, FaultyEnv, Habits

from envfleet import AsyncVectorEnv
from envfleet.vector.runtime import has_threads

STEP_TIMEOUT = 30.0
"""A worker that waits for a thread does so for ever: this ends the test, and is never waited for where all is well."""


@pytest.fixture(autouse=True)
def _no_pool() -> Iterator[None]:
    end_pool()
    yield
    end_pool()


def pooled_fns(num_envs: int = 4) -> list[Callable[[], PooledEnv]]:
    return [partial(PooledEnv, Habits(index, 5 + index)) for index in range(num_envs)]


def make(context: str | None, env_fns: list[Any] | None = None) -> AsyncVectorEnv:
    return AsyncVectorEnv(
        env_fns or pooled_fns(), context=context, num_workers=2, on_failure="restart", step_timeout=STEP_TIMEOUT
    )


def test_threads_are_noticed() -> None:
    if has_threads():
        pytest.skip("another test has left some")
    compute()
    assert has_threads()
    end_pool()
    assert not has_threads()


class ThreadCountingEnv(FaultyEnv):
    """Tells whether its process has threads."""

    def has_threads(self) -> bool:
        return has_threads()


def test_workers_have_none_of_their_own_that_count() -> None:
    """Or fleets that environments make would each start an interpreter of their own, which takes seconds."""
    with AsyncVectorEnv([partial(ThreadCountingEnv, Habits(0, 5))], context="fork") as envs:
        if has_threads():
            pytest.skip("another test has left some")
        assert envs.call("has_threads") == (False,)


def lose_and_go_on(envs: AsyncVectorEnv) -> None:
    oracle = Oracle(4)
    envs.reset(seed=0)
    oracle.assert_steps(envs, 2)
    actions = [0, 0, 0, Fault.KILL]
    oracle.assert_step(envs.step(actions), actions, lost=[3])
    oracle.assert_steps(envs, 2)
    assert envs.rebuilt.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("context", [None, "spawn"])
def test_a_caller_with_threads_makes_fleets_whose_environments_use_threads(context: str | None) -> None:
    compute()
    with make(context) as envs:
        lose_and_go_on(envs)


@pytest.mark.parametrize("context", [None, "fork"])
def test_a_worker_is_replaced_after_the_caller_has_got_threads(context: str | None) -> None:
    with make(context) as envs:
        compute()
        lose_and_go_on(envs)
        for cause in ("exit code 41", "SIGKILL"):  # of one that was started in another's place
            actions = [0, 0, 0, Fault.EXIT if "exit" in cause else Fault.KILL]
            envs.reset(seed=0)
            assert cause in envs.step(actions)[4]["restart_cause"][3]
        assert all(process.is_alive() and process.exitcode is None for process in envs.processes)
        assert psutil.Process(envs.processes[1].pid).ppid() == os.getpid()
    assert [process.exitcode for process in envs.processes] == [0, 0]


def test_who_insists_on_fork_is_told() -> None:
    compute()
    with (
        pytest.warns(RuntimeWarning, match=r"This program has threads.*forkserver") as warned,
        make("fork", [partial(FaultyEnv, Habits(index)) for index in range(4)]) as envs,
    ):
        envs.reset(seed=0)
    assert len(warned) == 1


def test_what_cannot_be_sent_is_forked_and_told() -> None:
    lock = threading.Lock()

    def locked(index: int) -> FaultyEnv:
        with lock:
            return FaultyEnv(Habits(index))

    compute()
    with (
        pytest.warns(RuntimeWarning, match="This program has threads, and its environments cannot be sent"),
        make(None, [partial(locked, index) for index in range(4)]) as envs,
    ):
        envs.reset(seed=0)


def test_a_fork_server_that_is_gone_is_done_without() -> None:
    before = {child.pid for child in psutil.Process().children()}
    with make("fork") as envs:
        workers = {process.pid for process in envs.processes}
        (server,) = {child.pid for child in psutil.Process().children()} - before - workers
        os.kill(server, signal.SIGKILL)
        still_running([server], 10)
        lose_and_go_on(envs)
