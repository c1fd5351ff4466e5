"""A Ctrl-C while a fleet is being made, as a terminal sends it: to the whole process group, at any moment."""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil  # type: ignore[import-untyped]
import pytest
from fleets import BENCHMARKS

from envfleet import AsyncVectorEnv
from envfleet.testing.envs import CounterEnv
from envfleet.vector.process.watch import Startup
from envfleet.vector.vector_env import CLOSE_TIMEOUT

ROUNDS = 3
# Longer than a loaded machine needs to end what it was starting.
LONG = 30.0

SCRIPT = f"""
import gc, os, sys, time
from collections import Counter
import psutil
sys.path.insert(0, {str(BENCHMARKS)!r})
from soaking.faulty import faulty_fns
from envfleet.vector import AsyncVectorEnv

def make_and_close():
    begin = time.monotonic()
    AsyncVectorEnv(faulty_fns(4), context=sys.argv[1], num_workers=2).close()
    return time.monotonic() - begin

def held():
    children = psutil.Process().children(recursive=True)
    things = Counter(f"process {{child.pid}}" for child in children if child.status() != psutil.STATUS_ZOMBIE)
    things.update(f"shared file {{name}}" for name in os.listdir("/dev/shm"))
    things["descriptors"] = len(os.listdir("/proc/self/fd"))
    things["threads"] = len(os.listdir("/proc/self/task"))
    return things

seconds, before = make_and_close(), held()  # helpers of Python's stay
for _ in range(int(sys.argv[2])):
    try:
        print(seconds, flush=True)
        while True:
            make_and_close()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    deadline = time.monotonic() + 10
    while (left := held() - before) and time.monotonic() < deadline:
        gc.collect()
    print(dict(left), flush=True)
print(seconds, flush=True)
while True:
    make_and_close()
"""


@contextmanager
def session(start_method: str) -> Iterator[subprocess.Popen[bytes]]:
    """The script in a session of its own, which is gone afterwards whatever happens."""
    command = [sys.executable, "-c", SCRIPT, start_method, str(ROUNDS)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True) as process:
        try:
            yield process
        finally:
            for pid in members(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def members(leader: int) -> list[int]:
    """The processes of a session that run."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def says(output: IO[bytes] | None) -> str:
    """The next line, which must come in time."""
    assert output is not None
    assert select.select([output], [], [], LONG)[0], "nothing came"
    return output.readline().decode().strip()


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_a_ctrl_c_while_a_fleet_is_made_leaves_nothing(start_method: str) -> None:
    moments = random.Random(start_method)
    with session(start_method) as process:
        for _ in range(ROUNDS):
            interrupt_somewhere(process, moments)
            assert says(process.stdout) == "interrupted"
            assert says(process.stdout) == "{}"
        interrupt_somewhere(process, moments)
        _, errors = process.communicate(timeout=LONG)
        assert process.returncode == -signal.SIGINT
        assert errors.rstrip().endswith(b"KeyboardInterrupt")
        if start_method != "forkserver":  # whose children are Python's own until they are told to be workers
            assert errors.count(b"Traceback") == 1
        deadline = time.monotonic() + LONG
        while left := members(process.pid):
            assert time.monotonic() < deadline, left


def interrupt_somewhere(process: subprocess.Popen[bytes], moments: random.Random) -> None:
    """Have a fleet interrupted at some moment between its beginning and its end."""
    time.sleep(float(says(process.stdout)) * moments.random())
    os.killpg(process.pid, signal.SIGINT)


def test_a_ctrl_c_while_workers_are_given_the_block_ends_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were not given it yet wait for that, and for nothing else."""

    def interrupted(self: Startup, worker: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Startup, "settle", interrupted)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        AsyncVectorEnv([CounterEnv] * 4, context="fork", num_workers=4)
    assert time.monotonic() - begin < CLOSE_TIMEOUT / 2


def test_a_ctrl_c_when_the_kernel_tells_of_a_workers_end_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells once: who is interrupted before that is noted takes the worker for running for ever."""
    AsyncVectorEnv([CounterEnv], context="fork").close()  # helpers of Python's stay
    before = open_files()
    envs = AsyncVectorEnv([CounterEnv] * 2, context="fork", num_workers=2)
    processes, wait, interruptions = envs.processes, os.waitpid, []

    def interrupted_wait(pid: int, options: int) -> tuple[int, int]:
        result = wait(pid, options)
        if result[0] != 0 and not interruptions:
            interruptions.append(pid)
            signal.raise_signal(signal.SIGINT)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(os, "waitpid", interrupted_wait)
        with pytest.raises(KeyboardInterrupt):
            envs.close()
    del envs
    gc.collect()
    assert [process.is_alive() for process in processes] == [False, False]
    assert open_files() == before


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
