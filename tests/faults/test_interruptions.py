"""A Ctrl-C anywhere: nothing is lost that reset() does not bring back, and nothing stale is ever returned."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from fleets import Oracle, fleet, options, soon, zeros
from soaking.faulty import Fault, FaultyEnv, Habits

from envfleet.errors import EnvRaisedError, ResetNeeded
from envfleet.testing.timeouts import make_fifo, release
from envfleet.vector import AsyncVectorEnv


class InterruptionError(BaseException):
    """Raised by a signal, anywhere in the caller, as a KeyboardInterrupt is."""


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    def interrupt(*_: object) -> NoReturn:
        raise InterruptionError

    signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # one may come late


class InterruptingEnv(FaultyEnv):
    """Interrupts its caller instead of waiting quietly, and when it is made again."""

    def __init__(self, habits: Habits, caller: int, marks: str = "") -> None:
        super().__init__(habits)
        self.caller = caller
        path = Path(marks, str(habits.index))
        if marks:
            with path.open("a") as file:
                file.write("|")
            if habits.index == 3 and path.stat().st_size == 2:
                self.interrupt()

    def interrupt(self) -> None:
        await_sleep(self.caller)
        os.kill(self.caller, signal.SIGUSR1)
        super().suffer(Fault.WAIT)

    def suffer(self, fault: int | None) -> str:
        if fault == Fault.WAIT:
            self.interrupt()
            return ""
        return super().suffer(fault)


def await_sleep(process: int) -> None:
    """Wait until a process waits: between two calls of the fleet an interruption costs nothing, and is no test."""
    asleep = 0
    while asleep < 10:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        time.sleep(0.001)


def interrupting_fns(fifo: str, marks: str = "") -> list[Callable[[], FaultyEnv]]:
    return [partial(InterruptingEnv, Habits(i, 5 + i, fifo), os.getpid(), marks) for i in range(4)]


def assert_as_new(envs: AsyncVectorEnv) -> None:
    """Assert that reset() makes the fleet as good as new, for steps and for tickets."""
    oracle = Oracle(4, seed=9)
    with soon():
        observations, _ = envs.reset(seed=9)
    for env, lone in enumerate(oracle.lone):
        np.testing.assert_array_equal(observations["draw"][env], lone.last["draw"])
    oracle.assert_steps(envs, 4)
    for _ in range(4):
        envs.send(zeros(envs))
        result = envs.recv()
        ids = result[4].pop("env_id")
        oracle.assert_step(result, zeros(envs), [], ids.tolist())


# What takes as long as environment 3 waits, which interrupts it.
LONG_USES: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "recv": lambda envs: (envs.send(zeros(envs, {3: Fault.WAIT})), envs.recv()),
    "recv of a reset": lambda envs: (envs.async_reset(options=options(envs, 3, Fault.WAIT)), envs.recv()),
    "step": lambda envs: envs.step(zeros(envs, {3: Fault.WAIT})),
    "reset": lambda envs: envs.reset(options=options(envs, 3, Fault.WAIT)),
    "call": lambda envs: envs.call("interrupt", indices=[3]),
}


@pytest.mark.parametrize("how", LONG_USES)
def test_an_interruption_while_environments_work(how: str, tmp_path: Path) -> None:
    fifo = make_fifo(tmp_path)
    with fleet(env_fns=interrupting_fns(fifo)) as envs:
        for _ in range(3):
            envs.reset()
            with pytest.raises(InterruptionError):
                LONG_USES[how](envs)
            release(fifo)
            if how != "call":
                for refused in (lambda: envs.step(zeros(envs)), lambda: envs.send(zeros(envs)), envs.recv):
                    with pytest.raises(ResetNeeded, match="interrupted"):
                        refused()
            assert_as_new(envs)


@pytest.mark.parametrize("on_failure", ["raise", "restart"])
@pytest.mark.parametrize("how", LONG_USES)
def test_a_fleet_that_was_interrupted_may_be_closed_at_once(how: str, on_failure: Any, tmp_path: Path) -> None:
    with fleet(env_fns=interrupting_fns(make_fifo(tmp_path)), on_failure=on_failure) as envs:
        envs.reset()
        with pytest.raises(InterruptionError):
            LONG_USES[how](envs)
        with soon(5):
            envs.close(timeout=0.2)  # environment 3 still waits
        assert not any(process.is_alive() for process in envs.processes)


class Interrupting:
    """Interrupts whoever unpickles it, in the middle of whatever that does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return signal.raise_signal, (signal.SIGUSR1,)


class BombEnv(FaultyEnv):
    """Its infos interrupt the caller while it reads them."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action if action < 9 else 0)
        if action == 9:
            info["bomb"] = Interrupting()
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("how", ["send", "step"])
def test_an_interruption_while_reports_are_read(how: str, num_workers: int) -> None:
    fns = [partial(BombEnv, Habits(i, 5 + i)) for i in range(4)]
    envs = AsyncVectorEnv(fns, context="fork", num_workers=num_workers, batch_size=None)
    for victims in ([0], [0, 1, 2, 3], [2, 3]):
        envs.reset()
        actions = zeros(envs)
        actions[victims] = 9
        with pytest.raises(InterruptionError):
            act(envs, how, actions)
        assert_as_new(envs)
    envs.close()


def act(envs: AsyncVectorEnv, how: str, actions: Any) -> None:
    if how == "step":
        envs.step(actions)
    elif how == "reset":
        envs.reset()
    else:
        envs.send(actions)
        envs.recv()


class Unreadable:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("unreadable",)


class UnreadableEnv(FaultyEnv):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action if action < 9 else 0)
        return observation, reward, terminated, truncated, {**info, "odd": Unreadable()} if action == 9 else info


@pytest.mark.parametrize("how", ["send", "step"])
def test_a_report_that_cannot_be_read_is_told_and_survived(how: str) -> None:
    with fleet(env_fns=[partial(UnreadableEnv, Habits(i, 5 + i)) for i in range(4)]) as envs:
        for _ in range(2):
            envs.reset()
            with pytest.raises(EnvRaisedError, match=r"unreadable.*\n.*return plain data"):
                act(envs, how, np.full(4, 9))
            assert_as_new(envs)


@pytest.mark.parametrize("how", ["step", "send", "reset"])
@pytest.mark.parametrize("on_failure", ["restart", "raise"])
def test_an_interruption_while_a_worker_is_replaced(how: str, on_failure: Any, tmp_path: Path) -> None:
    fifo = make_fifo(tmp_path)
    marks = tmp_path / "marks"
    marks.mkdir()
    with fleet(env_fns=interrupting_fns(fifo, str(marks)), on_failure=on_failure) as envs:
        envs.reset()
        pid = envs.call("process_id")[3]
        os.kill(pid, signal.SIGKILL)
        if on_failure == "raise":
            with pytest.raises(Exception, match="SIGKILL"):
                envs.step(zeros(envs))
            how = "reset"
        with pytest.raises(InterruptionError):
            act(envs, how, zeros(envs))
        assert_as_new(envs)
        assert len((marks / "3").read_text()) == 3


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt the caller, wherever it is, and again after a while if that was where Python ignores it.

    From another thread, so that there is one more that the kernel may hand the signal to.
    """
    left = threading.Event()

    def interrupt() -> None:
        patience = seconds
        while not left.wait(patience):
            os.kill(os.getpid(), signal.SIGUSR1)
            patience = 1.0

    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        yield
    finally:
        left.set()
        while thread.is_alive():
            pass


# Python itself ignores what is raised where it clears things away.
CLEARING_AWAY = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@CLEARING_AWAY
def test_an_interruption_at_any_time_is_survived() -> None:
    interruptions = 0
    with fleet(2, on_failure="restart", max_restarts=None) as envs:
        for number in range(60):
            try:
                with interrupted_after(0.0005 * (1 + number % 29)):
                    use(envs, number)
            except InterruptionError:
                interruptions += 1
        assert interruptions > 20
        assert_as_new(envs)


def use(envs: AsyncVectorEnv, number: int) -> None:
    envs.reset(seed=number)
    for step in range(100):
        envs.step(zeros(envs, {3: Fault.KILL} if number % 5 == 0 and step % 20 == 0 else {}))
        envs.send(zeros(envs))
        envs.recv()
        envs.call("process_id")


def test_an_interruption_leaves_the_callers_handlers_in_place() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with fleet(2) as envs:
        for number in range(40):
            with suppress(InterruptionError), interrupted_after(0.0003 * (1 + number % 7)):
                while True:
                    envs.reset()  # by messages, which are sent and read whole
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before


def test_workers_start_with_no_signal_blocked(start_method: str) -> None:
    """Or environments' timers would never ring, and their own processes could not be ended."""
    with fleet(env_fns=[partial(MaskEnv, Habits(i)) for i in range(2)], context=start_method) as envs:
        assert envs.call("blocked") == ([], [])


class MaskEnv(FaultyEnv):
    def blocked(self) -> list[str]:
        return [signal.Signals(number).name for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
