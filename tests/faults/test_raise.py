"""on_failure="raise": every failure is one error that says who, what and what to try, and reset() revives the fleet."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence

import pytest
from fleets import (
    BAD_OUTPUTS,
    DEADLY,
    LOST,
    PLACES,
    STEP_TIMEOUT,
    STUCK,
    Oracle,
    fleet,
    inflict,
    make,
    siblings,
    soon,
    wait_until_its_pipe_is_full,
    zeros,
)
from on_spawn import by_turns_on_spawn, on_spawn_only
from selection import without
from soaking.faulty import HUGE, Fault

from envfleet.errors import (
    EnvRaisedError,
    InvalidOutputError,
    ResetNeeded,
    WorkerDiedError,
    WorkerError,
    WorkerStuckError,
)
from envfleet.vector import AsyncVectorEnv


@pytest.fixture(scope="module")
def envs(sharing: tuple[int, str]) -> Iterator[AsyncVectorEnv]:
    """One fleet for all: whatever a test does to it, a reset must revive it."""
    with fleet(*sharing, step_timeout=60, batch_size=1) as one:
        yield one


@pytest.fixture(scope="module")
def watched(sharing: tuple[int, str]) -> Iterator[AsyncVectorEnv]:
    """The same with little patience."""
    with fleet(*sharing, step_timeout=STEP_TIMEOUT, batch_size=1) as one:
        yield one


def revive(envs: AsyncVectorEnv, made_again: Sequence[int] = ()) -> None:
    """Assert that a reset makes the fleet as good as new, and tells which environments had to be made again."""
    oracle = Oracle(envs.num_envs)
    with soon():
        result = envs.reset(seed=7)
    oracle.assert_reset(result, oracle.reset(seed=7), made_again)
    oracle.assert_steps(envs, 3)


def assert_told(error: WorkerError, envs: AsyncVectorEnv, victim: int) -> None:
    """Assert that an error names the environment, its worker and what to try."""
    worker = victim // (envs.num_envs // 2)
    assert error.worker == worker
    assert victim in error.env_indices
    assert f"worker {worker}" in str(error).lower()
    goes_on = isinstance(error, EnvRaisedError) and error.method == "call"
    for advice in ["The fleet goes on"] if goes_on else ["reset()", 'on_failure="restart"', "SyncVectorEnv"]:
        assert advice in str(error)


@by_turns_on_spawn()
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("fault", DEADLY, ids=lambda fault: fault.name)
def test_a_death_is_told_and_survived(envs: AsyncVectorEnv, fault: Fault, where: str) -> None:
    revive(envs)
    victim = envs.num_envs - 1
    with soon(), pytest.raises(WorkerDiedError, match=DEADLY[fault]) as caught:
        inflict(envs, where, victim, fault)
    assert_told(caught.value, envs, victim)
    assert caught.value.env_indices == tuple(siblings(envs, victim))
    assert f"environment {victim} was at work" in str(caught.value)
    assert "reset()" in str(caught.value)
    with pytest.raises(WorkerDiedError, match=DEADLY[fault]):
        envs.step(zeros(envs))
    revive(envs, siblings(envs, victim))


@by_turns_on_spawn()
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("fault", STUCK, ids=lambda fault: fault.name)
def test_a_hang_is_ended_told_and_survived(watched: AsyncVectorEnv, fault: Fault, where: str) -> None:
    revive(watched)
    victim = watched.num_envs - 1
    with soon(), pytest.raises(WorkerStuckError, match=f"environment {victim} {LOST[fault]}") as caught:
        inflict(watched, where, victim, fault)
    assert_told(caught.value, watched, victim)
    assert isinstance(caught.value, TimeoutError)
    assert "step_timeout" in str(caught.value)
    revive(watched, siblings(watched, victim))


def test_the_reset_after_a_hang_says_why_environments_were_made_again() -> None:
    with fleet(1, step_timeout=STEP_TIMEOUT) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerStuckError):
            envs.step(zeros(envs, {1: Fault.STOP}))
        assert f"environment 1 {LOST[Fault.STOP]}" in envs.reset()[1]["restart_cause"][1]


@pytest.mark.parametrize("where", PLACES)
def test_an_exception_is_told_and_survived(envs: AsyncVectorEnv, where: str) -> None:
    revive(envs)
    pids = envs.call("process_id")
    with pytest.raises(EnvRaisedError, match="environment 1 was told to raise") as caught:
        inflict(envs, where, 1, Fault.RAISE)
    assert isinstance(caught.value, ZeroDivisionError)
    assert_told(caught.value, envs, 1)
    assert "in _raise" in caught.value.traceback_text
    assert caught.value.traceback_text in str(caught.value)
    if where == "call":
        assert envs.step(zeros(envs))[0]["count"][:, 2].tolist() == [4] * envs.num_envs
    else:
        with pytest.raises(ResetNeeded, match="Environment 1"):
            envs.step(zeros(envs))
    revive(envs)
    assert envs.call("process_id") == pids  # nobody had to die for it


@without(lambda given: given["fault"] is Fault.BAD_REWARD and "reset" in given["where"])  # it has none
@pytest.mark.parametrize("where", ["step", "reset", "send", "async_reset"])
@pytest.mark.parametrize("fault", BAD_OUTPUTS, ids=lambda fault: fault.name)
def test_a_bad_output_is_told_and_survived(envs: AsyncVectorEnv, fault: Fault, where: str) -> None:
    revive(envs)
    with pytest.raises(InvalidOutputError, match=BAD_OUTPUTS[fault]) as caught:
        inflict(envs, where, 1, fault)
    assert_told(caught.value, envs, 1)
    assert caught.value.env_indices == (1,)
    assert f"returned from {'reset' if 'reset' in where else 'step'}()" in str(caught.value)
    revive(envs)


@pytest.mark.parametrize("where", ["step", "reset", "send", "async_reset"])
def test_an_unpicklable_info_is_told_and_survived(envs: AsyncVectorEnv, where: str) -> None:
    revive(envs)
    with pytest.raises(EnvRaisedError, match="cannot be sent to the caller's process") as caught:
        inflict(envs, where, 1, Fault.UNPICKLABLE)
    assert caught.value.env_indices == (1,)
    assert "lock" in str(caught.value)
    assert "Return plain data, or use SyncVectorEnv" in str(caught.value)
    revive(envs)


@on_spawn_only(where=["step"])
@pytest.mark.parametrize("where", ["step", "reset", "send"])
def test_a_huge_info_arrives(envs: AsyncVectorEnv, where: str) -> None:
    revive(envs)
    results = inflict(envs, where, 1, Fault.HUGE_INFO)
    infos = [result[-1] for result in results] if isinstance(results, list) else [results[-1]]
    (huge,) = [text for info in infos for text in info.get("huge", []) if text is not None]
    assert len(huge) == HUGE
    envs.step(zeros(envs))


def test_a_worker_killed_in_the_middle_of_a_message_is_told(envs: AsyncVectorEnv) -> None:
    revive(envs)
    pid = envs.call("process_id")[-1]
    envs.step_async(zeros(envs, {envs.num_envs - 1: Fault.HUGE_INFO}))
    wait_until_its_pipe_is_full(pid)
    os.kill(pid, signal.SIGKILL)
    with soon(), pytest.raises(WorkerDiedError, match="SIGKILL"):
        envs.step_wait()
    revive(envs, siblings(envs, envs.num_envs - 1))


def test_a_stopped_worker_that_had_nothing_to_do_is_told(watched: AsyncVectorEnv) -> None:
    revive(watched)
    os.kill(watched.call("process_id")[-1], signal.SIGSTOP)
    with soon(), pytest.raises(WorkerStuckError, match=r"it did nothing after 0.6 s"):
        watched.step(zeros(watched))
    revive(watched, siblings(watched, watched.num_envs - 1))


def test_a_worker_that_dies_with_nothing_to_do_blames_no_environment(envs: AsyncVectorEnv) -> None:
    revive(envs)
    pid = envs.call("process_id")[0]
    os.kill(pid, signal.SIGKILL)
    with soon(), pytest.raises(WorkerDiedError, match="SIGKILL") as caught:
        envs.step(zeros(envs))
    assert "at work" not in str(caught.value)
    assert f"pid {pid}" in str(caught.value)
    revive(envs, siblings(envs, 0))


def test_a_caller_that_takes_its_time_finds_nobody_stuck() -> None:
    with fleet(2, step_timeout=STEP_TIMEOUT) as envs:
        envs.reset()
        envs.step_async(zeros(envs))
        pause()
        envs.step_wait()
        pause()
        envs.send(zeros(envs))
        pause()
        envs.recv()


def pause() -> None:
    """What a caller does between its calls: for longer than an environment may."""
    time.sleep(1.5 * STEP_TIMEOUT)


@pytest.mark.parametrize("dead", [[0], [1], [0, 1]])
def test_a_closed_fleet_with_dead_workers_is_closed(dead: list[int]) -> None:
    envs = make(2)
    envs.reset()
    for worker in dead:
        envs.processes[worker].kill()
        envs.processes[worker].join()
    with soon():
        envs.close()
    assert not any(process.is_alive() for process in envs.processes)
