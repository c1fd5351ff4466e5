"""The end of native fleets: what threads use outlives them, nobody waits for ever, nothing stays behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.spaces import Box, Discrete
from native_gate import QUICK, Gate, ids, wait_until

from envfleet import NativeVectorEnv, make_vec, native

A_WHILE = 300_000


def threads() -> int:
    """How many threads this process has, those of no interpreter included."""
    return len(list(Path("/proc/self/task").iterdir()))


def are_gone(before: int) -> bool:
    """Whether there are no more threads than before. One that was joined is listed a moment longer."""
    deadline = time.monotonic() + 5
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.001)
    return threads() <= before


def interrupt_later(seconds: float = 0.2) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_steps_and_tickets_share_one_team_of_threads() -> None:
    before = threads()
    with NativeVectorEnv("CartPole-v1", 8, threads=2) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            envs.step(np.zeros(8, np.int64))
            envs.send(np.zeros(8, np.int64))
            envs.recv()
            assert threads() == before + 1
    del envs
    assert are_gone(before)


# --- dropped ---------------------------------------------------------------------------------------------


def test_a_fleet_that_is_dropped_waits_for_those_at_work(gate_library: Path) -> None:
    gate = Gate(gate_library)
    gate.envs.reset(seed=0)
    gate.trap(1)
    functions = gate._functions
    threading.Timer(0.2, functions.gate_set, (1,)).start()
    del gate
    assert functions.gate_inside() == 0


def simulated() -> tuple[NativeVectorEnv, Any]:
    """Slow steps of MuJoCo, and the object that holds its data."""
    pytest.importorskip("mujoco")
    envs = NativeVectorEnv("HalfCheetah-v5", 3, threads=3, env_kwargs={"frame_skip": 2000})
    return envs, envs._engine._shard._companions


def compiled() -> tuple[NativeVectorEnv, Any]:
    """Slow steps compiled by numba, and the object that holds the code."""
    pytest.importorskip("numba")

    @native.compile(observation_space=Box(0, 1, (1,), np.float64), action_space=Discrete(2), state=[("x", float)])
    class Slow:
        def reset(self: Any, random: Any) -> None:
            self.x = random.random()

        def step(self: Any, action: Any, random: Any) -> tuple[float, bool]:
            for _ in range(A_WHILE):
                self.x = 0.5 * self.x + 0.5 * random.random()
            return self.x, False

        def observe(self: Any, observation: Any) -> None:
            observation[0] = self.x

    return make_vec(Slow, 3, "native", {"threads": 3}), Slow


@pytest.mark.parametrize("make", [simulated, compiled])
@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_what_threads_use_is_freed_after_they_have_ended(make: Callable[[], Any], in_a_cycle: bool) -> None:
    before, at_the_end = threads(), []
    envs, used = make()
    weakref.finalize(used, lambda: at_the_end.append(are_gone(before)))
    del used
    envs.reset(seed=0)
    envs.send(envs.action_space.sample())
    if in_a_cycle:
        envs.itself = envs
    del envs
    gc.collect()
    assert at_the_end == [True]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Blackjack-v1"])
@pytest.mark.parametrize("closed", [False, True])
def test_a_fleet_that_nobody_holds_is_gone_at_once(env_id: str, closed: bool) -> None:
    """Without the garbage collector: nothing in it holds itself."""
    before = threads()
    envs = NativeVectorEnv(env_id, 4, threads=2, autoreset_mode="SameStep")
    envs.reset(seed=0)
    for _ in range(20):
        envs.step(np.zeros(4, np.int64))
    envs.send(np.zeros(4, np.int64))
    envs.recv()
    assert threads() > before
    if closed:
        envs.close()
    gc.disable()
    try:
        shard = weakref.ref(envs._engine._shard)
        del envs
        assert shard() is None
        assert are_gone(before)
    finally:
        gc.enable()


# --- closed ----------------------------------------------------------------------------------------------


def test_close_waits_for_those_at_work(gate: Gate) -> None:
    gate.trap(1)
    gate.open_later()
    gate.envs.close()
    assert gate.inside() == 0


@pytest.mark.parametrize("arguments", [{"timeout": 0.1}, {"timeout": 0}, {"terminate": True}], ids=str)
def test_close_gives_up_on_those_that_do_not_come_back(gate_library: Path, arguments: dict[str, Any]) -> None:
    """Their thread goes on, so all that it writes to is still there, however long after the fleet."""
    gate = Gate(gate_library)
    gate.envs.reset(seed=0)
    gate.trap(2)
    gate.send(QUICK, 0, 1)
    start = time.monotonic()
    with pytest.warns(RuntimeWarning, match=r"Environments \[2\] did not return"):
        gate.envs.close(**arguments)
    assert time.monotonic() - start < 2
    gate.envs.close()
    with pytest.raises(ClosedEnvironmentError):
        gate.envs.recv()
    functions = gate._functions
    del gate
    gc.collect()
    functions.gate_set(1)
    wait_until(lambda: functions.gate_inside() == 0, "it never came back")


def test_ctrl_c_ends_close(gate_library: Path) -> None:
    gate = Gate(gate_library)
    gate.envs.reset(seed=0)
    gate.trap(0)
    interrupt_later()
    with pytest.raises(KeyboardInterrupt):
        gate.envs.close(timeout=100)
    assert gate.envs.closed
    functions, start = gate._functions, time.monotonic()
    del gate
    assert time.monotonic() - start < 2
    functions.gate_set(1)
    wait_until(lambda: functions.gate_inside() == 0, "it never came back")


@pytest.mark.parametrize("how", ["reset", "async_reset"])
def test_ctrl_c_ends_a_reset_that_waits(gate: Gate, how: str) -> None:
    gate.trap(0)
    gate.send(QUICK, 1, 2)
    interrupt_later()
    with pytest.raises(KeyboardInterrupt):
        getattr(gate.envs, how)(seed=1)
    with pytest.raises(ResetNeeded):
        gate.envs.recv()
    gate.open_later()
    observations, _ = gate.envs.reset(seed=1)
    assert observations.tolist() == [0, 0, 0, 0]
    gate.send(QUICK, 0, 1, 2, 3)
    assert [len(ids(gate.envs.recv())) for _ in range(2)] == [3, 1]


STUCK_AT_THE_END = """
import sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from native_gate import Gate

gate = Gate(Path(sys.argv[1]))
gate.envs.reset(seed=0)
gate.trap(0)
"""


def run(script: str, library: Path, *options: str) -> str:
    here = str(Path(__file__).parent)
    command = [sys.executable, *options, "-c", script, str(library), here]
    return subprocess.run(command, check=True, timeout=100, capture_output=True, text=True).stderr


def test_a_program_ends_although_one_is_stuck(gate_library: Path) -> None:
    assert "ResourceWarning: A native fleet was dropped" in run(STUCK_AT_THE_END, gate_library, "-Walways")


# --- forked ----------------------------------------------------------------------------------------------

FORKED = """
import os, signal, sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[2])
warnings.filterwarnings("ignore", category=DeprecationWarning)  # that threads and fork do not go together
import numpy as np
from native_gate import Gate, ids
from envfleet import make_vec

def in_a_copy(work):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            work()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child

def wait_for(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def refused(call):
    try:
        call()
    except RuntimeError as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("not refused")
"""

AT_WORK = """
gate = Gate(Path(sys.argv[1]))
gate.envs.reset(seed=0)
gate.trap(0)

def use():
    for call in (gate.envs.recv, gate.envs.reset, gate.envs.async_reset):
        refused(call)
    gate.envs.close()

child = in_a_copy(use)
gate.open()
wait_for(child)
assert ids(gate.envs.recv()) == [0]
gate.envs.close()
"""

BEFORE_THE_FIRST_SEND = """
gate = Gate(Path(sys.argv[1]))

def use():
    gate.envs.reset(seed=0)
    gate.envs.step(np.zeros(4, np.int64))
    for _ in range(3):
        gate.trap(0)
        gate.open_later()
        assert ids(gate.envs.recv()) == [0]
        gate._functions.gate_set(0)
    gate.trap(1)
    gate.open_later()
    gate.envs.close()
    assert gate.inside() == 0

wait_for(in_a_copy(use))
use()
"""

AFTER_STEPS = """
gate = Gate(Path(sys.argv[1]))
gate.envs.reset(seed=0)

def use():
    assert gate.envs.step(np.zeros(4, np.int64))[1].tolist() == [1] * 4
    gate.open()
    gate.send(1, 0, 1)
    assert ids(gate.envs.recv()) == [0, 1]

wait_for(in_a_copy(use))
use()
"""

# At any moment, also while a thread holds a lock.
IN_A_HURRY = """
envs = make_vec("CartPole-v1", 64, "native", {"threads": 2, "batch_size": 8})
envs.reset(seed=0)
envs.send(np.zeros(64, np.int64))
for turn in range(150):
    def use():
        refused((envs.recv, envs.reset, lambda: envs.recv(timeout=1))[turn % 3])
        envs.close()
    child = in_a_copy(use)
    for _ in range(20):
        env_ids = envs.recv()[-1]["env_id"]
        envs.send(np.zeros(8, np.int64), env_ids)
    wait_for(child)
envs.close()
"""


@pytest.mark.parametrize("script", [AT_WORK, BEFORE_THE_FIRST_SEND, AFTER_STEPS, IN_A_HURRY])
def test_forked_copies(gate_library: Path, script: str) -> None:
    """Threads are not copied: a copy is told so where it would wait for them, and has its own where it hires some."""
    run(FORKED + script, gate_library)
