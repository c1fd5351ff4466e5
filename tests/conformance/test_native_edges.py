"""Compiled fleets at the edges of a program: its threads, its signals, its forks, its limits and its end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_gate import QUICK, STUCK, Gate, ids, wait_until
from own_environments import LIBRARIES, build

from envfleet.errors import ClosedEnvironmentError, FleetInUseError

ZEROS = np.zeros(4, np.int64)


def run(script: str, *arguments: object) -> None:
    """Runs a program, which must end well and within a minute."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"


# --- two threads -----------------------------------------------------------------------------------------


@contextmanager
def stuck_in_a_step(gate: Gate) -> Iterator[None]:
    """Another thread is in step() meanwhile, and comes back from it at the end."""
    results: list[Any] = []
    actions = np.full(4, STUCK)
    thread = threading.Thread(target=lambda: results.append(gate.envs.step(actions)))
    thread.start()
    try:
        wait_until(lambda: gate.inside() > 0, "nobody began")
        yield
    finally:
        gate.open()
        thread.join(60)
    assert results[0][1].tolist() == [3.0] * 4


def test_a_pool_that_another_thread_uses_refuses_everything_that_works_on_rows(gate: Gate) -> None:
    gate.open()
    for _ in range(2):
        gate.envs.step(np.full(4, STUCK))
    gate._functions.gate_set(0)
    pool: Any = gate.envs._pool  # type: ignore[attr-defined]
    pool_calls: list[Callable[[], object]] = [
        pool.step_stored,
        lambda: pool.reset(np.ones(4, np.bool_), []),
        lambda: pool.send_stored(np.arange(4)),
        lambda: pool.snapshot(0),
        lambda: pool.restore(0, b""),
        lambda: pool.seed(0, 1),
        lambda: pool.rng_state(0),
    ]
    # The turn before has to be a long one: one that keeps the GIL lets nobody else in.
    with stuck_in_a_step(gate):
        for call in pool_calls:
            with pytest.raises(FleetInUseError, match="in use by another thread"):
                call()
        assert pool.step(ZEROS, True) is None
        assert pool.send(ZEROS, np.arange(4)) is False
    assert gate.envs.step(ZEROS)[1].tolist() == [4.0] * 4


def test_rows_at_work_are_refused(gate: Gate) -> None:
    gate.trap(1)
    pool: Any = gate.envs._pool  # type: ignore[attr-defined]
    for all_rows in (
        pool.step_stored,
        lambda: pool.reset(np.ones(4, np.bool_), []),
        lambda: pool.set_everywhere("x", 1),
    ):
        with pytest.raises(ValueError, match="some environments are at work"):
            all_rows()
    for one_row in (
        lambda: pool.seed(1, 3),
        lambda: pool.snapshot(1),
        lambda: pool.restore(1, pool.snapshot(0)),
        lambda: pool.set(1, "x", 1),
        lambda: pool.send_stored(np.array([0, 1])),
        lambda: pool.send_stored(np.array([2, 2])),
        lambda: pool.send_resets(np.array([0, 1]), []),
        lambda: pool.send_resets(np.array([2, 2]), []),
    ):
        with pytest.raises(ValueError, match="at work"):
            one_row()
    assert pool.send(ZEROS[:1], np.array([1])) is False
    gate.send(QUICK, 0)
    gate.open()
    assert ids(gate.envs.recv()) == [0, 1]


def test_close_in_another_thread_ends_recv(gate: Gate) -> None:
    gate.trap(0)
    closing = threading.Timer(0.3, lambda: gate.envs.close(timeout=60))
    closing.start()
    with pytest.raises(ClosedEnvironmentError):
        gate.envs.recv()
    gate.open()
    closing.join(60)


# --- signal handlers that use the fleet ------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("what", ["close", "reset"])
def test_a_signal_handler_may_use_the_fleet_that_recv_waits_for(gate: Gate, what: str, timeout: float | None) -> None:
    envs = gate.envs
    gate.trap(0)

    def handle(*_: object) -> None:
        gate.open()
        envs.close() if what == "close" else envs.reset(seed=1)

    before = signal.signal(signal.SIGUSR1, handle)
    timer = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(ClosedEnvironmentError if what == "close" else FleetInUseError):
            envs.recv(timeout)
        if what == "reset":
            envs.reset(seed=1)
            assert envs.step(ZEROS)[1].tolist() == [1.0] * 4
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


# --- environments that need the GIL ----------------------------------------------------------------------

NEEDS_GIL = """
import sys
import numpy as np
from envfleet import make_vec, native
envs = make_vec(native.load(sys.argv[1]), 4, vector_kwargs={"threads": 2, "batch_size": 2})
envs.reset(seed=0)
zeros = np.zeros(4, np.int64)
for _ in range(30):
    for _ in range(33):  # turns so short that they keep the GIL
        envs.reset()
    for turn in range(1, 4):
        assert envs.step(zeros)[1].tolist() == [turn] * 4
for _ in range(50):
    envs.send(zeros)
    assert sorted([*envs.recv()[-1]["env_id"], *envs.recv()[-1]["env_id"]]) == [0, 1, 2, 3]
envs.close()
"""


def test_environments_may_ask_for_the_gil_on_every_thread(tmp_path: Path) -> None:
    run(NEEDS_GIL, build(LIBRARIES / "needs_gil.c", tmp_path / "needs_gil.so"))


# --- the end of the program ------------------------------------------------------------------------------

ENDS = """
import sys, threading, time
import numpy as np
from envfleet import make_vec
backend, num_envs, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
arguments = {"threads": threads} if backend == "native" else {}
envs = make_vec("CartPole-v1", num_envs, backend, arguments)
envs.reset(seed=0)
actions, begun = np.zeros(num_envs, np.int64), threading.Event()

def step_for_ever():
    while True:
        envs.step(actions)
        begun.set()

threading.Thread(target=step_for_ever, daemon=True).start()
assert begun.wait(60)
time.sleep(0.05)
"""


@pytest.mark.parametrize(("backend", "num_envs", "threads"), [("native", 4096, 1), ("native", 4096, 2), ("sync", 8, 0)])
def test_a_program_ends_while_a_daemon_thread_steps(backend: str, num_envs: int, threads: int) -> None:
    for _ in range(2):
        run(ENDS, backend, num_envs, threads)


# --- forked copies ---------------------------------------------------------------------------------------

FORKED = """
import os, signal, warnings
warnings.filterwarnings("ignore", category=DeprecationWarning)
import numpy as np
from envfleet import make_vec

def fleet():
    envs = make_vec("CartPole-v1", 64, "native", {"threads": 3, "batch_size": 64})
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(np.zeros(64, np.int64))
    envs.send(np.zeros(64, np.int64))
    envs.recv()
    return envs

envs = fleet()
for close in (True, False):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        ours = fleet()
        if close:
            envs.close()
        del envs
        for _ in range(3):
            ours.step(np.zeros(64, np.int64))
        ours.close()
        del ours
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
envs.step(np.zeros(64, np.int64))
envs.close()
"""


def test_a_forked_copy_may_make_a_fleet_and_drop_the_old_one() -> None:
    run(FORKED)


# --- limits ----------------------------------------------------------------------------------------------

NO_THREADS = """
import os, resource, threading
import numpy as np
from envfleet import make_vec
fleets = [make_vec("CartPole-v1", 8, "native", {"threads": threads, "batch_size": 3}) for threads in (1, 3)]
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
if os.getuid() == 0:
    os.setuid(65534)  # the superuser is not limited
try:
    threading.Thread(target=print).start()
except RuntimeError:
    pass
else:
    raise SystemExit(77)
results = []
for envs in fleets:
    envs.reset(seed=3)
    rewards = [envs.step(np.ones(8, np.int64))[0].copy() for _ in range(30)]
    envs.send(np.ones(8, np.int64))
    got = [envs.recv() for _ in range(3)]
    order = np.argsort(np.concatenate([result[-1]["env_id"] for result in got]))
    results.append(np.concatenate([*rewards, np.concatenate([result[0] for result in got])[order]]))
    envs.close()
assert (results[0] == results[1]).all()
"""


def test_a_fleet_steps_with_fewer_threads_where_there_are_none() -> None:
    command = [sys.executable, "-c", NO_THREADS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode == 77:
        pytest.skip("threads can be made whatever the limit is")
    assert done.returncode == 0, done.stderr
