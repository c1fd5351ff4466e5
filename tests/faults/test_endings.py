"""The end of the caller, of a fleet, or of the machine's patience: nothing stays behind, and everything says why."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from fleets import BENCHMARKS, SOON, ClosingEnv, fleet, make, soon, zeros
from processes import still_running
from soaking.faulty import Fault, FaultyEnv, Habits, faulty_fns

from envfleet.errors import ClosedEnvironmentError, EnvRaisedError, WorkerError
from envfleet.vector import AsyncVectorEnv

PRELUDE = f"""
import gc, os, resource, sys
from multiprocessing import resource_tracker
sys.path.insert(0, {str(BENCHMARKS)!r})
import numpy as np
from soaking.faulty import Fault, faulty_fns
from envfleet.errors import *
from envfleet.vector import AsyncVectorEnv
"""
MAKE = """
envs = AsyncVectorEnv(faulty_fns(4), context=sys.argv[1], num_workers=2, batch_size=1, on_failure=sys.argv[2])
envs.reset(seed=0)
zeros = np.zeros(4, np.int64)
"""
TELL = """
print(*(process.pid for process in envs.processes), flush=True)
"""
FLEET = MAKE + TELL
ALONE = FLEET.replace("num_workers=2", "num_workers=4")


@contextmanager
def script(body: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Run a script that makes a fleet; yields the process and the pids of the fleet's workers."""
    command = [sys.executable, "-c", PRELUDE + body, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            yield process, [int(pid) for pid in process.stdout.readline().split()]
        finally:
            process.kill()


def check(body: str, *arguments: str) -> str:
    """Run a script to its end; it must end well and in silence."""
    command = [sys.executable, "-c", PRELUDE + body, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


# -- the caller's end ---------------------------------------------------------------------------------

AT_WORK = {
    "receiving": "envs.send(zeros)\nwhile True: envs.send(np.zeros(1, np.int64), envs.recv()[4]['env_id'])",
    "in a loop": "envs.step(np.array([0, 0, 0, Fault.LOOP]))",
    "holding the GIL": "envs.send(np.array([Fault.HOLD_GIL, 0, 0, 0]))\nwhile True: envs.recv()",
    "idle": "sys.stdin.read()",
}


@pytest.mark.parametrize(
    ("doing", "num_workers", "start_method"),
    [
        *((doing, num_workers, "fork") for doing in AT_WORK for num_workers in (2, 4)),
        # A worker watches its caller in the same way however it was started: one that is busy, one that is not.
        ("in a loop", 2, "spawn"),
        ("in a loop", 4, "spawn"),
        ("idle", 2, "spawn"),
    ],
)
def test_workers_end_within_two_seconds_of_a_killed_caller(doing: str, num_workers: int, start_method: str) -> None:
    shared_files = set(os.listdir("/dev/shm"))  # noqa: PTH208 - names are all that is needed
    fleet_of = {2: FLEET, 4: ALONE}
    with script(fleet_of[num_workers] + AT_WORK[doing], start_method, "restart") as (process, workers):
        assert len(workers) == num_workers
        assert still_running(workers, 0) == workers
        process.kill()
        process.wait()
        assert still_running(workers, 2) == []
    assert set(os.listdir("/dev/shm")) <= shared_files  # noqa: PTH208


# Made by a thread that has ended: to the kernel, that thread was the workers' parent. It ends a little after join()
# returns, and the workers are sent a signal then, which would wake those that a test has stopped.
FLEET_OF_A_THREAD = f"""
import os, threading, time, warnings
warnings.filterwarnings("ignore", "This program has threads", RuntimeWarning)
thread = threading.Thread(target=lambda: exec({MAKE!r}, globals()))
thread.start()
thread.join()
while str(thread.native_id) in os.listdir("/proc/self/task"):
    time.sleep(0.01)
{TELL}
"""


@pytest.mark.parametrize(
    ("body", "start_method"),
    [(FLEET, "fork"), (FLEET, "spawn"), (FLEET, "forkserver"), (FLEET_OF_A_THREAD, "fork")],
    ids=["fork", "spawn", "forkserver", "fork in a thread"],
)
def test_stopped_workers_end_within_two_seconds_of_a_killed_caller(body: str, start_method: str) -> None:
    with script(body + "sys.stdin.read()", start_method, "restart") as (process, workers):
        assert len(workers) == 2
        helpers = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        wait_until_stopped(workers)
        process.kill()
        process.wait()
        assert still_running([*workers, *helpers], 2) == []


def wait_until_stopped(pids: list[int]) -> None:
    deadline = time.monotonic() + SOON
    while any(psutil.Process(pid).status() != psutil.STATUS_STOPPED for pid in pids):
        assert time.monotonic() < deadline


def test_the_end_of_the_thread_that_made_a_fleet_harms_nobody() -> None:
    check(FLEET_OF_A_THREAD + "assert envs.step(zeros)[0]['count'][:, 2].tolist() == [1] * 4", "fork", "raise")


@pytest.mark.parametrize(
    "body",
    [
        "envs.send(zeros)",
        "envs.send(zeros)\nenvs.recv()\ndel envs\ngc.collect()",
        "envs.step(np.array([0, 0, 0, Fault.KILL]))",
        "envs.step(np.array([0, 0, 0, Fault.KILL]))\ndel envs\ngc.collect()",
        "envs.send(np.array([0, 0, 0, Fault.LOOP]))",
        "envs.async_reset()",
    ],
)
def test_an_interpreter_that_ends_without_close_ends_its_workers_in_silence(body: str) -> None:
    with script(FLEET + body, "fork", "restart") as (process, workers):
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")
        assert still_running(workers, 2) == []


FORKED = """
envs.send(zeros)
child = os.fork()
if child == 0:
    code = 0
    uses = [
        envs.recv,
        lambda: envs.step(zeros),
        lambda: envs.send(zeros),
        envs.async_reset,
        envs.reset,
        lambda: envs.call("process_id"),
    ]
    for number, use in enumerate(uses, 1):
        try:
            use()
            code = number
        except FleetError as error:
            code = code if "another process" in str(error) else number + 10
    if sys.argv[3] == "close":
        envs.close()
    elif sys.argv[3] == "delete":
        del uses, use, envs
        gc.collect()
    if sys.argv[3] == "exit":
        sys.exit(code)
    os._exit(code)
_, status = os.waitpid(child, 0)
assert status == 0, status
ids = sorted(int(envs.recv()[4]["env_id"][0]) for _ in range(4))
assert ids == [0, 1, 2, 3], ids
for step in range(2, 5):
    assert envs.step(zeros)[0]["count"][:, 2].tolist() == [step] * 4
assert envs.step(np.array([0, 0, 0, Fault.KILL]))[3][1:].tolist() == [False, False, True]
envs.close()
"""


@pytest.mark.parametrize(
    ("ending", "start_method"),
    [*((ending, "fork") for ending in ("close", "delete", "exit", "leave")), ("exit", "spawn")],
)
def test_a_forked_copy_of_the_caller_is_refused_and_does_no_harm(ending: str, start_method: str) -> None:
    check(FLEET + FORKED, start_method, "restart", ending)


# -- the end of a fleet -------------------------------------------------------------------------------


def lose(envs: AsyncVectorEnv) -> None:
    with pytest.raises(WorkerError):
        envs.step(zeros(envs, {0: Fault.KILL}))


def fail(envs: AsyncVectorEnv) -> None:
    with pytest.raises(WorkerError):
        envs.step(zeros(envs, {0: Fault.RAISE}))


STATES: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "never reset": lambda envs: None,
    "reset": lambda envs: envs.reset(),
    "resetting": lambda envs: envs.reset_async(),
    "stepping": lambda envs: (envs.reset(), envs.step_async(zeros(envs))),
    "calling": lambda envs: envs.call_async("process_id"),
    "sent": lambda envs: (envs.reset(), envs.send(zeros(envs))),
    "partly received": lambda envs: (envs.reset(), envs.send(zeros(envs)), envs.recv()),
    "resetting one by one": lambda envs: envs.async_reset(),
    "much unread": lambda envs: (envs.reset(), envs.send(zeros(envs, {0: Fault.HUGE_INFO}))),
    "failed": lambda envs: (envs.reset(), fail(envs)),
    "lost": lambda envs: (envs.reset(), lose(envs)),
    "dying": lambda envs: (envs.reset(), envs.step_async(zeros(envs, {0: Fault.KILL}))),
    "all dead": lambda envs: [os.kill(process.pid or 0, signal.SIGKILL) for process in envs.processes],
}
HANGING: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "stopped": lambda envs: [os.kill(process.pid or 0, signal.SIGSTOP) for process in envs.processes],
    "hanging": lambda envs: (envs.reset(), envs.step_async(zeros(envs, {0: Fault.HOLD_GIL}))),
    "hanging on a ticket": lambda envs: (envs.reset(), envs.send(zeros(envs, {0: Fault.LOOP}))),
}


@pytest.mark.parametrize("state", [*STATES, *HANGING])
def test_a_fleet_may_be_closed_in_any_state(state: str) -> None:
    envs = make(2, batch_size=1)
    ({**STATES, **HANGING})[state](envs)
    with soon(5):
        envs.close(timeout=0.3 if state in HANGING else None)
    assert not any(process.is_alive() for process in envs.processes)
    envs.close()
    for refused in (envs.reset, envs.recv, lambda: envs.send(zeros(envs))):
        with pytest.raises(ClosedEnvironmentError):
            refused()


@pytest.mark.parametrize("state", ["sent", "partly received", "lost", "hanging on a ticket"])
def test_a_fleet_may_be_forgotten_in_any_state(state: str) -> None:
    envs = make(2, batch_size=1)
    ({**STATES, **HANGING})[state](envs)
    pids = [process.pid or 0 for process in envs.processes]
    del envs
    gc.collect()
    assert still_running(pids, 2) == []


def test_a_replaced_worker_is_closed_like_any_other(tmp_path: Path) -> None:
    fns = [partial(ClosingEnv, Habits(i), str(tmp_path)) for i in range(4)]
    with fleet(env_fns=fns, on_failure="restart") as envs:
        envs.reset()
        envs.step(zeros(envs, {3: Fault.KILL}))
        pids = {process.pid or 0 for process in envs.processes}
        assert set(envs.call("process_id")) == pids
    assert still_running(pids, 0) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]


# -- the machine's limits -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "on_failure", "start_method", "num_workers"),
    [
        (0, "raise", "fork", 2),
        (3, "restart", "fork", 2),
        (2, "raise", "fork", 4),
        (0, "restart", "fork", 4),
        (3, "raise", "spawn", 2),
        (1, "restart", "spawn", 4),
    ],
)
def test_a_constructor_that_fails_in_one_of_many_leaves_nothing(
    broken: int, on_failure: Any, start_method: str, num_workers: int
) -> None:
    fns: list[Any] = faulty_fns(4)
    fns[broken] = partial(FaultyEnv, None)
    with (
        soon(20),
        pytest.raises(EnvRaisedError, match=f"Environment {broken} .* raised AttributeError in make") as caught,
    ):
        AsyncVectorEnv(fns, context=start_method, num_workers=num_workers, on_failure=on_failure)
    assert caught.value.env_indices == (broken,)
    assert "Try whether a single one can be made" in str(caught.value)


TOO_LARGE = """
from gymnasium import spaces
from envfleet.testing.envs import Frame, PlaybackEnv

def env_fn():
    parent = os.getppid()  # whose limit it is: the worker needs memory too
    pages = int(open(f"/proc/{parent}/statm").read().split()[0])
    limits = {"space": (resource.RLIMIT_AS, pages * 4096 + 24 * 2**20), "file": (resource.RLIMIT_FSIZE, 2**20)}
    kind, limit = limits[sys.argv[1]]
    unlimited = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (unlimited, unlimited))  # a worker forked after another set the limit has it too
    resource.prlimit(parent, kind, (limit, unlimited))
    return PlaybackEnv(spaces.Box(0, 255, (2**20,), np.uint8), [Frame(0)])

resource_tracker.ensure_running()  # Python's own helper stays
before = len(os.listdir("/proc/self/fd"))
try:
    AsyncVectorEnv([env_fn] * 16, context=sys.argv[2], num_workers=2)
except MemoryError as error:
    print(error)
gc.collect()
print(len(os.listdir("/proc/self/fd")) - before)
"""


def test_a_block_that_is_too_large_is_refused_and_leaves_nothing(start_method: str) -> None:
    message, left = check(TOO_LARGE, "file", start_method).splitlines()
    assert "64 MiB" in message  # 16 for the observations, and three pages of them
    assert "fewer environments or smaller observations" in message
    assert left == "0"


def test_too_little_memory_is_told_and_leaves_nothing(start_method: str) -> None:
    message, left = check(TOO_LARGE, "space", start_method).splitlines()
    assert "MiB" in message
    assert left == "0"


FEW_FILES = """
resource_tracker.ensure_running()
before = len(os.listdir("/proc/self/fd"))
limit = before + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
try:
    envs = AsyncVectorEnv(faulty_fns(6), context=sys.argv[1], num_workers=6, on_failure="restart")
except OSError as error:
    print(error)
gc.collect()
print(len(os.listdir("/proc/self/fd")) - before)
"""


# Too few for one or the other of the first worker's pipes, and for those of a later one.
@pytest.mark.parametrize("room", [1, 3, 5, 18])
def test_too_few_file_descriptors_are_told_and_none_are_left(room: int, start_method: str) -> None:
    message, left = check(FEW_FILES, start_method, str(room)).splitlines()
    assert "Too many open files" in message
    assert "ulimit -n" in message
    assert left == "0"


NO_FILES_TO_RESTART = """
zeros = np.zeros(4, np.int64)
envs = AsyncVectorEnv(faulty_fns(4), context=sys.argv[1], num_workers=2, on_failure="restart")
envs.reset(seed=0)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
try:
    envs.step(np.array([0, 0, 0, Fault.KILL]))
except OSError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
envs.reset(seed=0)
for step in range(1, 4):
    assert envs.step(zeros)[0]["count"][:, 2].tolist() == [step] * 4
envs.close()
"""


def test_a_restart_without_file_descriptors_is_told_and_survived(start_method: str) -> None:
    assert "ulimit -n" in check(NO_FILES_TO_RESTART, start_method)
