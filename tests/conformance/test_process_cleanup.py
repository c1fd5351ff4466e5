"""Nothing stays behind: no process, no file, no descriptor, however the fleet or its caller ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from process_fleets import EVERY_START_METHOD, NUM_ENVS, SOON, assert_gone, process_fleet, within
from processes import still_running

from envfleet.testing.envs import CounterEnv, endless_fns, trouble_fns
from envfleet.testing.timeouts import make_fifo
from envfleet.vector import AsyncVectorEnv

pytestmark = pytest.mark.usefixtures("nothing_left_behind")

PRELUDE = """
import gc, os, sys
import numpy as np
from envfleet.testing.envs import Command, endless_fns, trouble_fns
from envfleet.vector import AsyncVectorEnv

fifo = sys.argv[2] if len(sys.argv) > 2 else None
envs = AsyncVectorEnv(trouble_fns(4, fifo=fifo), context=sys.argv[1], num_workers=2)
envs.reset()
print(*(process.pid for process in envs.processes), flush=True)
"""
WAIT_FOR_EVER = "sys.stdin.read()\n"
STEP_FOR_EVER = "while True: envs.step(np.zeros(4, np.int64))\n"
HANG = "envs.step(np.array([0, 0, 0, Command.HANG]))\n"


@contextmanager
def script(tmp_path: Path, body: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Run a script that makes a fleet; yields the process and the pids of the fleet's workers."""
    path = tmp_path / "script.py"
    path.write_text(PRELUDE + body)
    with subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, [int(pid) for pid in process.stdout.readline().split()]
        finally:
            process.kill()


@EVERY_START_METHOD
@pytest.mark.parametrize("body", [WAIT_FOR_EVER, STEP_FOR_EVER, HANG], ids=["idle", "stepping", "hanging"])
def test_workers_end_when_the_caller_is_killed(body: str, start_method: str, tmp_path: Path) -> None:
    shared_files = set(os.listdir("/dev/shm"))  # noqa: PTH208 - names are all that is needed
    with script(tmp_path, body, start_method, make_fifo(tmp_path)) as (process, workers):
        assert len(workers) == 2
        assert still_running(workers, timeout=0) == workers
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert_gone(workers)
    assert set(os.listdir("/dev/shm")) <= shared_files  # noqa: PTH208


@EVERY_START_METHOD
@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", 0),
        ("envs.step_async(np.zeros(4, np.int64))\n", 0),
        ("del envs\ngc.collect()\n", 0),
        ("sys.exit(3)\n", 3),
        ("envs.close()\nenvs.close()\n", 0),
    ],
    ids=["forgotten", "pending", "deleted", "exit", "closed"],
)
def test_a_caller_that_ends_ends_its_workers_in_silence(
    body: str, code: int, start_method: str, tmp_path: Path
) -> None:
    with script(tmp_path, body, start_method) as (process, workers):
        assert len(workers) == 2
        _, errors = process.communicate(timeout=SOON)
        assert process.returncode == code
        assert errors == ""
        assert_gone(workers)


@EVERY_START_METHOD
def test_an_interrupt_ends_everything_with_one_traceback(start_method: str, tmp_path: Path) -> None:
    with script(tmp_path, STEP_FOR_EVER, start_method) as (process, workers):
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=2 * SOON)
        assert process.returncode in (-signal.SIGINT, 130, 1)
        assert errors.count("Traceback") == 1
        assert "KeyboardInterrupt" in errors
        assert_gone(workers)


def test_a_forked_copy_of_the_caller_does_not_end_the_workers(tmp_path: Path) -> None:
    body = """
child = os.fork()
if child == 0:
    envs.close()
    del envs
    gc.collect()
    os._exit(0)
os.waitpid(child, 0)
observations, *_ = envs.step(np.full(4, 2))
assert observations[:, 2:4].tolist() == [[1, 2]] * 4
envs.close()
"""
    with script(tmp_path, body, "fork") as (process, _):
        _, errors = process.communicate(timeout=SOON)
        assert (process.returncode, errors) == (0, "")


@EVERY_START_METHOD
def test_a_forgotten_fleet_ends_its_workers(start_method: str) -> None:
    envs = AsyncVectorEnv(endless_fns(NUM_ENVS), context=start_method, num_workers=2)
    envs.reset()
    pids = [process.pid for process in envs.processes if process.pid is not None]
    del envs
    gc.collect()
    assert_gone(pids)


@EVERY_START_METHOD
def test_a_closed_fleet_has_no_living_process(start_method: str) -> None:
    with process_fleet(context=start_method) as envs:
        assert all(process.is_alive() for process in envs.processes)
        with within(SOON):
            envs.close()
        assert not any(process.is_alive() for process in envs.processes)


@EVERY_START_METHOD
def test_descriptors_do_not_pile_up(start_method: str) -> None:
    def open_descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def use_a_fleet() -> None:
        with process_fleet(context=start_method) as envs:
            envs.reset()
            envs.step([0] * NUM_ENVS)
        del envs
        gc.collect()

    use_a_fleet()
    before = open_descriptors()
    for _ in range(2 if start_method == "spawn" else 5):
        use_a_fleet()
    assert open_descriptors() <= before


class MappingsEnv(CounterEnv):
    def mappings(self) -> str:
        """Return what this process has mapped and opened."""
        opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        return Path("/proc/self/maps").read_text() + "\n".join(opened)


@EVERY_START_METHOD
def test_no_block_lies_in_dev_shm(start_method: str) -> None:
    with process_fleet([MappingsEnv] * NUM_ENVS, start_method) as envs:
        envs.reset()
        for text in (*envs.call("mappings"), MappingsEnv().mappings()):
            assert "/dev/shm" not in text


@EVERY_START_METHOD
def test_a_fleet_outlives_the_thread_that_made_it(start_method: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        envs = pool.submit(AsyncVectorEnv, endless_fns(NUM_ENVS), context=start_method, num_workers=2).result()
    # The thread is gone; on Linux a child may ask to die with its parent, and that means the parent's thread.
    envs.reset()
    for step in range(1, 20):
        assert envs.step([0] * NUM_ENVS)[0][:, 2].tolist() == [step] * NUM_ENVS
    envs.close()


def test_a_fleet_may_be_used_in_another_thread() -> None:
    with process_fleet() as envs, ThreadPoolExecutor(1) as pool:
        envs.reset()
        assert pool.submit(envs.step, [0] * NUM_ENVS).result()[0][:, 2].tolist() == [1] * NUM_ENVS


def test_fleets_of_many_generations_leave_nothing(tmp_path: Path) -> None:
    for generation in range(5):
        with process_fleet(trouble_fns(NUM_ENVS, close_log=str(tmp_path))) as envs:
            envs.reset()
        assert [len((tmp_path / str(i)).read_text().splitlines()) for i in range(NUM_ENVS)] == [
            generation + 1
        ] * NUM_ENVS


UNCLOSED = """
import sys, weakref
early = type("Early", (), {})()
weakref.finalize(early, print, "early")  # its exit handler is registered before multiprocessing's
from envfleet.testing.envs import endless_fns
from envfleet.vector import AsyncVectorEnv

envs = AsyncVectorEnv(endless_fns(2), context=sys.argv[1], daemon=sys.argv[2] == "True")
envs.reset()
"""


@EVERY_START_METHOD
@pytest.mark.parametrize("daemon", [True, False])
def test_a_program_that_never_closes_its_fleet_ends(start_method: str, daemon: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCLOSED, start_method, str(daemon)], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "early\n", "")
