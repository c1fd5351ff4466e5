"""Without a step_timeout one that hangs is told of by a warning, once, and nothing else happens to it."""

from __future__ import annotations

import multiprocessing
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fleets import Oracle, fleet, options, zeros
from soaking.faulty import Fault, faulty_fns

from envfleet.testing.timeouts import make_fifo, release
from envfleet.vector import AsyncVectorEnv, failures

STUCK_AFTER = 0.1
# Long enough for several looks after that; a look comes every 0.05 seconds.
A_WHILE = 0.25
VICTIM = 3

BEGIN: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "step": lambda envs: envs.step_async(zeros(envs, {VICTIM: Fault.WAIT})),
    "reset": lambda envs: envs.reset_async(options=options(envs, VICTIM, Fault.WAIT)),
    "call": lambda envs: envs.call_async("suffer", int(Fault.WAIT), indices=[VICTIM]),
    "send": lambda envs: envs.send(zeros(envs, {VICTIM: Fault.WAIT})),
}
WAIT = {"step": "step_wait", "reset": "reset_wait", "call": "call_wait", "send": "recv"}


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    return make_fifo(tmp_path)


@pytest.fixture
def envs(fifo: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[AsyncVectorEnv]:
    monkeypatch.setattr(failures, "STUCK_WARNING_AFTER", STUCK_AFTER)
    with fleet(env_fns=faulty_fns(4, fifo)) as one:
        yield one


@pytest.mark.parametrize("where", BEGIN)
def test_one_that_hangs_is_told_of_once(envs: AsyncVectorEnv, fifo: str, where: str) -> None:
    wait = getattr(envs, WAIT[where])
    envs.reset(seed=0)
    pid = envs.processes[1].pid
    for _ in range(2):  # each time that it hangs
        BEGIN[where](envs)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(2):
                with pytest.raises(multiprocessing.TimeoutError):
                    wait(timeout=A_WHILE)
        assert [warning.category for warning in told] == [RuntimeWarning]
        assert re.match(
            rf"Environment {VICTIM} \(worker 1, pid {pid}\) has not finished for \d+ s\. "
            "Pass step_timeout=seconds to have stuck environments ended",
            str(told[0].message),
        )
        release(fifo)
        wait()
    oracle = Oracle(4)
    oracle.assert_reset(envs.reset(seed=0), oracle.reset(0))
    oracle.assert_steps(envs, 3)
    assert envs.processes[1].pid == pid
