"""Long messages, to workers that do not read and from workers that do not go on: every wait is watched."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fleets import STEP_TIMEOUT, ClosingEnv, fleet, options, soon, wait_until_its_pipe_is_full, zeros
from soaking.faulty import HUGE, Fault, FaultyEnv, Habits

from envfleet.errors import WorkerDiedError, WorkerStuckError
from envfleet.vector import AsyncVectorEnv, failures

# More than any pipe holds.
LONG = "x" * 4_000_000
VICTIM = 3

TELL: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "reset": lambda envs: envs.reset(options={"text": LONG}),
    "async_reset": lambda envs: (envs.async_reset(options={"text": LONG}), receive_all(envs)),
    "call": lambda envs: envs.set_attr("text", LONG),
}


def receive_all(envs: AsyncVectorEnv) -> list[Any]:
    """What is out, one environment after another."""
    return [envs.recv() for _ in range(envs.num_envs)]


def stop(envs: AsyncVectorEnv, worker: int = 1) -> int:
    """Stop a worker; returns its pid."""
    pid = envs.processes[worker].pid or 0
    os.kill(pid, signal.SIGSTOP)
    return pid


def assert_works(envs: AsyncVectorEnv) -> None:
    """Assert that reset() makes the fleet as good as new."""
    with soon():
        envs.reset(seed=1)
        for count in (1, 2):
            assert envs.step(zeros(envs))[0]["count"][:, 2].tolist() == [count] * envs.num_envs


# -- to workers that do not read ----------------------------------------------------------------------


@pytest.mark.parametrize("how", TELL)
def test_a_worker_that_does_not_read_is_ended_and_told(how: str) -> None:
    with fleet(2, step_timeout=STEP_TIMEOUT, batch_size=1) as envs:
        envs.reset()
        stop(envs)
        with soon(), pytest.raises(WorkerStuckError, match=r"it did nothing after 0.6 s \(step_timeout\)") as caught:
            TELL[how](envs)
        assert caught.value.worker == 1
        assert_works(envs)


@pytest.mark.parametrize("how", ["reset", "async_reset"])
def test_a_worker_that_does_not_read_is_replaced(how: str) -> None:
    with fleet(2, step_timeout=STEP_TIMEOUT, batch_size=1, on_failure="restart") as envs:
        envs.reset(seed=0)
        pid = stop(envs)
        with soon():
            TELL[how](envs)
        assert envs.processes[1].pid != pid
        assert envs.step(zeros(envs))[0]["count"][:, 2].tolist() == [1] * 4


@pytest.mark.parametrize("on_failure", ["raise", "restart"])
def test_an_environment_that_hangs_before_the_next_one_was_told_its_options(on_failure: Any) -> None:
    with fleet(2, step_timeout=STEP_TIMEOUT, batch_size=1, on_failure=on_failure) as envs:
        envs.reset(seed=0)
        told: list[Any] = [{**(option or {}), "text": LONG} for option in options(envs, 2, Fault.LOOP)]
        if on_failure == "raise":
            with soon(), pytest.raises(WorkerStuckError, match=r"environment 2 had not finished after 0.6 s"):
                envs.async_reset(options=told)
        else:  # told to loop again and again, until it may not be restarted any more
            with soon(30), pytest.raises(WorkerStuckError, match=r"environment 2 .* restarted 10 times"):
                envs.async_reset(options=told)
        assert_works(envs)


@pytest.mark.parametrize("how", TELL)
def test_a_death_is_noticed_while_another_worker_does_not_read(how: str) -> None:
    with fleet(2, batch_size=1) as envs:
        envs.reset()
        stopped = stop(envs)
        envs.processes[0].kill()
        with soon(), pytest.raises(WorkerDiedError, match="SIGKILL") as caught:
            TELL[how](envs)
        assert caught.value.worker == 0
        os.kill(stopped, signal.SIGCONT)
        assert_works(envs)


@contextmanager
def later(seconds: float, do: Callable[[], Any]) -> Iterator[None]:
    """Do something beside the block, after so many seconds."""
    timer = threading.Timer(seconds, do)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@pytest.mark.parametrize("how", TELL)
def test_a_worker_that_reads_late_is_warned_of_and_loses_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "STUCK_WARNING_AFTER", 0.2)
    with fleet(2, batch_size=1) as envs:
        envs.reset()
        pid = stop(envs)
        with (
            soon(),
            later(0.6, partial(os.kill, pid, signal.SIGCONT)),
            pytest.warns(RuntimeWarning, match=f"worker 1, pid {pid}. has not finished .* Pass step_timeout=seconds"),
        ):
            TELL[how](envs)
        assert_works(envs)


class InterruptionError(BaseException):
    """Raised by a signal, anywhere in the caller, as a KeyboardInterrupt is."""


@pytest.fixture
def interruptible() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise InterruptionError

    signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def tell_and_interrupt(envs: AsyncVectorEnv, how: str) -> None:
    with soon(), later(0.3, partial(os.kill, os.getpid(), signal.SIGUSR1)), pytest.raises(InterruptionError):
        TELL[how](envs)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("how", TELL)
def test_ctrl_c_in_the_middle_of_a_message_parts_nothing(how: str) -> None:
    with fleet(2, batch_size=1) as envs:
        for _ in range(2):
            envs.reset()
            pid = stop(envs)
            tell_and_interrupt(envs, how)
            os.kill(pid, signal.SIGCONT)  # it is told the rest before anything else
            assert_works(envs)
        envs.set_attr("text", LONG)
        assert [len(text) for text in envs.get_attr("text")] == [len(LONG)] * 4


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("how", TELL)
def test_a_worker_that_was_told_half_a_message_is_closed_like_any_other(how: str, tmp_path: Path) -> None:
    fns = [partial(ClosingEnv, Habits(i), str(tmp_path)) for i in range(4)]
    with fleet(env_fns=fns, batch_size=1) as envs:
        envs.reset()
        pid = stop(envs)
        tell_and_interrupt(envs, how)
        os.kill(pid, signal.SIGCONT)
        with soon(4):
            envs.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]


# -- from workers that do not go on -------------------------------------------------------------------


def stop_in_the_middle_of_a_report(envs: AsyncVectorEnv, how: str) -> int:
    """Have a worker stopped while it says something long; returns its pid."""
    envs.reset(seed=0)
    actions = zeros(envs, {VICTIM: Fault.HUGE_INFO})
    envs.step_async(actions) if how == "step" else envs.send(actions)
    pid = envs.processes[1].pid or 0
    wait_until_its_pipe_is_full(pid)
    return stop(envs)


def collect(envs: AsyncVectorEnv, how: str, timeout: float | None = None) -> int:
    """Collect all that is under way; returns the length of what was long."""
    results = [envs.step_wait(timeout)] if how == "step" else [envs.recv(timeout)]
    (text,) = [text for result in results for text in result[4]["huge"] if text is not None]
    return len(text)


HOW = ["step", "send"]


@pytest.mark.parametrize("how", HOW)
def test_a_worker_that_stops_in_the_middle_of_a_report_is_ended_and_told(how: str) -> None:
    with fleet(2, step_timeout=STEP_TIMEOUT) as envs:
        stop_in_the_middle_of_a_report(envs, how)
        with soon(), pytest.raises(WorkerStuckError, match=r"after 0.6 s"):
            collect(envs, how)
        assert_works(envs)


@pytest.mark.parametrize("how", HOW)
def test_a_worker_that_stops_in_the_middle_of_a_report_is_replaced(how: str) -> None:
    with fleet(2, step_timeout=STEP_TIMEOUT, on_failure="restart") as envs:
        pid = stop_in_the_middle_of_a_report(envs, how)
        with soon():
            assert collect(envs, how) == HUGE
        assert envs.processes[1].pid != pid
        assert envs.rebuilt.tolist() == [0, 0, 1, 1]
        assert envs.step(zeros(envs))[0]["count"][:, 2].tolist() == [2] * 4


@pytest.mark.parametrize("on_failure", ["raise", "restart"])
@pytest.mark.parametrize("how", HOW)
def test_a_wait_that_expires_in_the_middle_of_a_report_loses_nothing(how: str, on_failure: Any) -> None:
    with fleet(2, on_failure=on_failure) as envs:
        pid = stop_in_the_middle_of_a_report(envs, how)
        for _ in range(2):
            with soon(), pytest.raises(multiprocessing.TimeoutError, match="Nothing is lost"):
                collect(envs, how, timeout=0.2)
        os.kill(pid, signal.SIGCONT)
        with soon():
            assert collect(envs, how) == HUGE
        if on_failure == "restart":  # what was received in vain is known all the same
            envs.processes[0].kill()
            envs.processes[1].kill()
            assert envs.step(zeros(envs))[0]["count"][:, 2].tolist() == [2] * 4
            assert envs.rebuilt.tolist() == [1] * 4


@pytest.mark.parametrize("victim", [0, 2])
def test_a_long_report_keeps_nobody_from_the_next_environment(victim: int) -> None:
    with fleet(2) as envs:  # whose batches are all environments, also those behind the one that says much
        envs.reset(seed=0)
        for _ in range(2):
            envs.send(zeros(envs, {victim: Fault.HUGE_INFO}))
            with soon():
                assert collect(envs, "send") == HUGE


class SlowEnv(FaultyEnv):
    """Takes most of the time that it may."""

    def step(self, action: Any) -> Any:
        time.sleep(0.75 * STEP_TIMEOUT)
        return super().step(action)


def test_a_worker_that_is_done_is_not_stuck_while_another_takes_its_time() -> None:
    fns = [partial(SlowEnv if i >= 2 else FaultyEnv, Habits(i)) for i in range(4)]
    with fleet(env_fns=fns, step_timeout=STEP_TIMEOUT) as envs:
        envs.reset()
        envs.send(zeros(envs))
        assert envs.recv()[0]["count"][:, 2].tolist() == [1] * 4
