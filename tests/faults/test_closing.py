"""close() of fleets that restart what they lose, and after a hang: clean, and in time, whatever they are at."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from fleets import STEP_TIMEOUT, make, soon, zeros
from processes import still_running
from soaking.faulty import Fault

from envfleet.errors import ClosedEnvironmentError, WorkerError, WorkerStuckError
from envfleet.vector import AsyncVectorEnv


def lose_a_call(envs: AsyncVectorEnv) -> None:
    with pytest.raises(WorkerError, match="not asked again"):
        envs.call("suffer", int(Fault.KILL), indices=[0])


def exceed_the_limit(envs: AsyncVectorEnv, fault: Fault) -> None:
    envs.reset()
    for _ in range(2):
        assert envs.step(zeros(envs, {0: fault}))[3][0]
        envs.step(zeros(envs))
    with pytest.raises(WorkerError, match="restarted 2 times"):
        envs.step(zeros(envs, {0: fault}))


STATES: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "never reset": lambda envs: None,
    "stepping": lambda envs: (envs.reset(), envs.step_async(zeros(envs))),
    "partly received": lambda envs: (envs.reset(), envs.send(zeros(envs)), envs.recv()),
    "resetting one by one": lambda envs: envs.async_reset(),
    "failing": lambda envs: (envs.reset(), envs.step_async(zeros(envs, {0: Fault.RAISE}))),
    "restarted in place": lambda envs: (envs.reset(), envs.step(zeros(envs, {0: Fault.RAISE}))),
    "dying": lambda envs: (envs.reset(), envs.step_async(zeros(envs, {0: Fault.KILL}))),
    "dying on a ticket": lambda envs: (envs.reset(), envs.send(zeros(envs, {0: Fault.KILL}))),
    "replaced": lambda envs: (envs.reset(), envs.step(zeros(envs, {0: Fault.KILL}))),
    "replaced, not told": lambda envs: (envs.reset(), lose_a_call(envs)),
    "replaced after a hang": lambda envs: (envs.reset(), envs.step(zeros(envs, {0: Fault.HOLD_GIL}))),
    "environment given up": lambda envs: exceed_the_limit(envs, Fault.RAISE),
    "worker given up": lambda envs: exceed_the_limit(envs, Fault.KILL),
    "all dead": lambda envs: [os.kill(process.pid or 0, signal.SIGKILL) for process in envs.processes],
}
HANGING: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "stopped": lambda envs: [os.kill(process.pid or 0, signal.SIGSTOP) for process in envs.processes],
    "hanging": lambda envs: (envs.reset(), envs.step_async(zeros(envs, {0: Fault.HOLD_GIL}))),
    "hanging on a ticket": lambda envs: (envs.reset(), envs.send(zeros(envs, {0: Fault.LOOP}))),
}


def assert_closes(envs: AsyncVectorEnv, timeout: float | None = None) -> None:
    pids = [process.pid or 0 for process in envs.processes]
    with soon(5):
        envs.close(timeout=timeout)
    assert still_running(pids, 0) == []
    envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.reset()


@pytest.mark.parametrize("state", [*STATES, *HANGING])
def test_a_fleet_that_restarts_may_be_closed_in_any_state(state: str) -> None:
    """Forked: closing reads pipes and ends processes, which are the same however they were started."""
    envs = make(2, on_failure="restart", max_restarts=2, step_timeout=STEP_TIMEOUT, batch_size=1)
    ({**STATES, **HANGING})[state](envs)
    assert_closes(envs, timeout=0.3 if state in HANGING else None)


@pytest.mark.parametrize("envs_a_worker", [1, 2])
@pytest.mark.parametrize("fault", [Fault.STOP, Fault.LOOP], ids=lambda fault: fault.name)
def test_a_fleet_may_be_closed_after_one_was_stuck(fault: Fault, envs_a_worker: int) -> None:
    envs = make(envs_a_worker, step_timeout=STEP_TIMEOUT)
    envs.reset()
    with pytest.raises(WorkerStuckError):
        envs.step(zeros(envs, {0: fault}))
    assert_closes(envs)
