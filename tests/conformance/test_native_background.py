"""Native environments that were sent work in the background: nobody waits for one that does not come back."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from native_gate import FAIL, QUICK, STUCK, Gate, ids, wait_until

from envfleet.errors import EnvRaisedError


def test_one_that_is_stuck_keeps_nobody_waiting(gate: Gate) -> None:
    gate.trap(2)
    for turn in range(1, 20):
        gate.send(QUICK, 0, 1, 3)
        observations, rewards, _, _, infos = gate.envs.recv()
        assert sorted(infos["env_id"].tolist()) == [0, 1, 3]
        assert observations.tolist() == [turn] * 3
        assert rewards.tolist() == [turn] * 3
    gate.open()
    assert ids(gate.envs.recv()) == [2]


def test_a_timeout_loses_nothing(gate: Gate) -> None:
    gate.trap(1)
    for _ in range(2):
        with pytest.raises(multiprocessing.TimeoutError, match="still at work"):
            gate.envs.recv(timeout=0.05)
    gate.open()
    assert ids(gate.envs.recv(timeout=30)) == [1]
    gate.send(QUICK, 0, 1, 2, 3)
    assert len(ids(gate.envs.recv())) == 3
    assert len(ids(gate.envs.recv())) == 1


def test_results_that_are_there_are_given_out_before_the_time_is_up(gate: Gate) -> None:
    gate.trap(0)
    gate.send(QUICK, 1, 2, 3)
    assert ids(gate.envs.recv(timeout=30)) == [1, 2, 3]


def test_whoever_is_at_work_is_named(gate: Gate) -> None:
    gate.trap(3)
    with pytest.raises(Exception, match=r"environments \[3\] are at work"):
        gate.envs.step(np.zeros(4, np.int64))
    with pytest.raises(Exception, match=r"environments \[3\], which are still at work"):
        gate.send(QUICK, 0, 3)
    assert gate.envs._block.out.tolist() == [False, False, False, True]


def test_ctrl_c_ends_the_waiting_and_reset_goes_on(gate: Gate) -> None:
    gate.trap(0)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        gate.envs.recv()
    gate.open_later()
    observations, _ = gate.envs.reset(seed=1)
    assert observations.tolist() == [0, 0, 0, 0]
    gate.send(QUICK, 0)
    assert ids(gate.envs.recv()) == [0]


def test_reset_waits_for_those_at_work_and_forgets_them(gate: Gate) -> None:
    gate.trap(1)
    gate.send(QUICK, 0)
    gate.open_later()
    gate.envs.async_reset(seed=4)
    observations, rewards, _, _, infos = gate.envs.recv()
    assert observations.tolist() == rewards.tolist() == [0, 0, 0]
    assert len(infos["env_id"]) == 3
    assert len(gate.envs.recv()[0]) == 1


def test_without_helpers_the_caller_does_it_all(gate_library: Path) -> None:
    gate = Gate(gate_library, threads=1, batch_size=2)
    gate.envs.reset(seed=0)
    gate.open()
    gate.send(STUCK, 0, 1, 2, 3)
    assert [ids(gate.envs.recv(timeout=0)) for _ in range(2)] == [[0, 1], [2, 3]]
    gate.envs.close()


def test_other_threads_run_while_one_is_waited_for(gate: Gate) -> None:
    """Also after turns so short that nobody else had to be let in: it is another thread that opens the gate."""
    for _ in range(40):
        gate.send(QUICK, 0, 1, 2)
        time.sleep(0.002)  # long enough for all to be there when they are asked for
        gate.envs.recv()
    gate.trap(3)
    gate.open_later()
    assert ids(gate.envs.recv()) == [3]


def test_one_that_fails_is_named_by_recv_and_reset_goes_on(gate: Gate) -> None:
    for reset in (gate.envs.reset, gate.envs.async_reset):
        gate.send(QUICK, 0, 1)
        gate.send(FAIL, 3)
        with pytest.raises(EnvRaisedError, match="Environment 3") as caught:
            gate.envs.recv()
        assert caught.value.env_indices == (3,)
        for refused in (lambda: gate.send(QUICK, 0), gate.envs.recv, lambda: gate.envs.step(np.zeros(4, np.int64))):
            with pytest.raises(ResetNeeded):
                refused()
        reset()
    assert len(ids(gate.envs.recv())) == 3
    assert len(ids(gate.envs.recv())) == 1


def test_only_those_in_the_batch_are_named(gate_library: Path) -> None:
    gate = Gate(gate_library, batch_size=1)
    gate.envs.reset(seed=0)
    gate.send(FAIL, 3)
    gate.send(FAIL, 0)
    wait_until(lambda: (gate.envs._pool.failure() or (3,))[0] == 0, "the second did not fail")
    with pytest.raises(EnvRaisedError, match="Environment 3"):
        gate.envs.recv()
    gate.envs.close()
