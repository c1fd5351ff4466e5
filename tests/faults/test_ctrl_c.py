"""A Ctrl-C while a fleet works, as a terminal sends it: to the caller and all its workers. reset() goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fleets import BENCHMARKS
from processes import still_running

from envfleet.testing.timeouts import make_fifo

SCRIPT = f"""
import os, signal, sys, threading
sys.path[:0] = [{str(BENCHMARKS)!r}, {str(Path(__file__).parent)!r}]
from fleets import options, zeros
from soaking.faulty import Fault, faulty_fns
from test_interruptions import assert_as_new, await_sleep
from envfleet.testing.timeouts import release
from envfleet.vector import AsyncVectorEnv

start_method, on_failure, fifo = sys.argv[1:]
envs = AsyncVectorEnv(faulty_fns(4, fifo), context=start_method, num_workers=2, on_failure=on_failure)
pids = [process.pid for process in envs.processes]

def press_ctrl_c():
    await_sleep(os.getpid())
    os.killpg(0, signal.SIGINT)  # as a terminal does it

def interrupted(use):
    threading.Thread(target=press_ctrl_c).start()
    use()

def assert_interrupted(use):
    try:
        interrupted(use)
    except KeyboardInterrupt:
        return
    raise AssertionError("not interrupted")

# What takes until environment 3 is released.
actions, orders = zeros(envs, {{3: Fault.WAIT}}), options(envs, 3, Fault.WAIT)
uses = [
    lambda: envs.step(actions),
    lambda: envs.reset(options=orders),
    lambda: (envs.send(actions), envs.recv()),
    lambda: (envs.async_reset(options=orders), envs.recv()),
    lambda: envs.call("suffer", int(Fault.WAIT), indices=[3]),
]
for use in uses:
    envs.reset()
    assert_interrupted(use)
    assert_interrupted(envs.reset)  # which waits for environment 3, too
    release(fifo)
    assert_as_new(envs)
assert [process.pid for process in envs.processes] == pids
print(*pids, flush=True)
envs.reset()
interrupted(uses[0])  # and nobody catches it
"""


# How a worker was started matters to who ignores a Ctrl-C, not to what is done about failures.
@pytest.mark.parametrize(("start_method", "on_failure"), [("fork", "raise"), ("fork", "restart"), ("spawn", "raise")])
def test_a_fleet_goes_on_until_nobody_catches_the_interruption(
    start_method: str, on_failure: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SCRIPT, start_method, on_failure, make_fifo(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    workers = [int(pid) for pid in output.split()]
    assert len(workers) == 2, errors
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert still_running(workers, 2) == []
