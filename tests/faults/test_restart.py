"""on_failure="restart": the lost come back truncated, by the rules of seeds, and nobody else ever notices."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import (
    BAD_OUTPUTS,
    DEADLY,
    LOST,
    NUM_WORKERS,
    STEP_TIMEOUT,
    Oracle,
    fleet,
    inflict,
    once_fns,
    options,
    siblings,
    soon,
    zeros,
)
from gymnasium.vector import AutoresetMode
from on_spawn import by_turns_on_spawn, on_spawn_only
from soaking.faulty import Fault, faulty_fns
from soaking.oracle import seed_after_restart

from envfleet.errors import EnvRaisedError, ResetNeeded, WorkerDiedError, WorkerError, WorkerStuckError
from envfleet.vector import AsyncVectorEnv, SyncVectorEnv

IN_PLACE = (Fault.RAISE, *BAD_OUTPUTS)
BAD_OBSERVATIONS = {fault: text for fault, text in BAD_OUTPUTS.items() if fault is not Fault.BAD_REWARD}
MODES = list(AutoresetMode)


@pytest.fixture(scope="module")
def envs(sharing: tuple[int, str]) -> Iterator[AsyncVectorEnv]:
    """One fleet for all: restarts must leave nothing that a later test could trip over."""
    fns = once_fns(NUM_WORKERS * sharing[0])
    care: dict[str, Any] = {"on_failure": "restart", "max_restarts": None, "step_timeout": STEP_TIMEOUT}
    with fleet(*sharing, fns, **care) as one:
        yield one


def begun(envs: AsyncVectorEnv) -> Oracle:
    """Reset both, and take some steps."""
    oracle = Oracle(envs.num_envs, envs.autoreset_mode, seed=11)
    envs.reset(seed=11)
    oracle.assert_steps(envs, 4)
    return oracle


@by_turns_on_spawn("step")
@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.name)
def test_a_lost_worker_is_replaced_within_a_step(envs: AsyncVectorEnv, fault: Fault) -> None:
    oracle, victim, rebuilt = begun(envs), envs.num_envs - 1, envs.rebuilt
    with soon():
        result = envs.step(zeros(envs, {victim: fault}))
    cause = result[4]["restart_cause"][victim]
    assert LOST[fault] in cause
    assert f"environment {victim}" in cause
    assert f"worker {1}" in cause
    oracle.assert_step(result, zeros(envs), [victim])
    oracle.assert_steps(envs, 20)
    assert np.flatnonzero(envs.rebuilt - rebuilt).tolist() == siblings(envs, victim)[:-1]


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.STOP], ids=lambda fault: fault.name)
def test_a_lost_process_is_ended_once(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    with fleet(on_failure="restart", step_timeout=STEP_TIMEOUT) as envs:
        envs.reset(seed=0)
        victim, waits = envs.processes[1], []
        monkeypatch.setattr(victim, "join", lambda: waits.append(type(victim).join(victim)))
        envs.step(zeros(envs, {envs.num_envs - 1: fault}))
        assert envs.processes[1] is not victim
        assert not victim.is_alive()
        assert len(waits) <= 1


@pytest.mark.parametrize("fault", IN_PLACE, ids=lambda fault: fault.name)
def test_an_environment_that_fails_is_made_again_alone(envs: AsyncVectorEnv, fault: Fault) -> None:
    oracle, victim = begun(envs), envs.num_envs - 1
    pids = [process.pid for process in envs.processes]
    result = envs.step(zeros(envs, {victim: fault}))
    wanted = "ZeroDivisionError: environment" if fault is Fault.RAISE else "expected"
    assert wanted in result[4]["restart_cause"][victim]
    oracle.assert_step(result, zeros(envs), [victim])
    oracle.assert_steps(envs, 20)
    assert [process.pid for process in envs.processes] == pids


@by_turns_on_spawn()
@pytest.mark.parametrize("where", ["reset", "async_reset"])
@pytest.mark.parametrize("fault", [Fault.RAISE, *BAD_OBSERVATIONS, *LOST], ids=lambda fault: fault.name)
def test_one_that_is_lost_in_a_reset_is_reset_again_and_tells(
    envs: AsyncVectorEnv, fault: Fault, where: str, tmp_path: Path
) -> None:
    oracle, victim, rebuilt = begun(envs), envs.num_envs - 1, envs.rebuilt
    with soon():
        result = reset_badly(envs, where, fault, tmp_path)
    wanted = {**LOST, **BAD_OBSERVATIONS, Fault.RAISE: "was told to raise"}[fault]
    assert re.search(wanted, result[1]["restart_cause"][victim])
    oracle.assert_reset(result, oracle.reset(lost=[victim]), [victim])
    oracle.assert_steps(envs, 2)
    # As for any other restart: the next one is the second.
    oracle.assert_step(envs.step(zeros(envs, {victim: Fault.RAISE})), zeros(envs), [victim])
    oracle.assert_steps(envs, 12)
    others = siblings(envs, victim)[:-1] if fault in LOST else []
    assert np.flatnonzero(envs.rebuilt - rebuilt).tolist() == others


@on_spawn_only(fault=[Fault.RAISE])
@pytest.mark.parametrize("where", ["reset", "async_reset"])
@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.KILL], ids=lambda fault: fault.name)
def test_one_that_is_lost_in_a_reset_with_a_seed_gets_that_seed(
    envs: AsyncVectorEnv, fault: Fault, where: str, tmp_path: Path
) -> None:
    oracle, victim = begun(envs), envs.num_envs - 1
    oracle.assert_reset(reset_badly(envs, where, fault, tmp_path, seed=21), oracle.reset(21, [victim]), [victim])
    # Restarts are counted from the time it was given that seed.
    oracle.assert_step(envs.step(zeros(envs, {victim: Fault.RAISE})), zeros(envs), [victim])
    oracle.assert_steps(envs, 12)


def reset_badly(envs: AsyncVectorEnv, where: str, fault: Fault, folder: Path, seed: int | None = None) -> Any:
    """Reset all, of which the last fails at the first attempt; returns what `reset` would."""
    own = {"fault": int(fault), "mark": str(folder / "mark")}
    options = [None] * (envs.num_envs - 1) + [own]
    if where == "reset":
        return envs.reset(seed=seed, options=options)
    envs.async_reset(seed=seed, options=options)
    observations, rewards, terminated, truncated, infos = envs.recv()
    assert not np.concatenate([rewards, terminated, truncated]).any()
    order = np.argsort(infos["env_id"])
    columns = {name: column[order] for name, column in infos.items()}
    return {name: column[order] for name, column in observations.items()}, columns


@on_spawn_only(number=[signal.SIGKILL])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
@pytest.mark.parametrize("seed", [None, 21])
def test_a_worker_lost_before_a_reset_is_replaced(
    envs: AsyncVectorEnv, number: signal.Signals, seed: int | None
) -> None:
    oracle = begun(envs)
    os.kill(envs.processes[0].pid or 0, number)
    with soon():
        result = envs.reset(seed=seed)
    oracle.assert_reset(result, oracle.reset(seed))
    oracle.assert_steps(envs, 12)


@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.NAN, Fault.KILL], ids=lambda fault: fault.name)
def test_a_reset_that_fails_every_time_ends_at_the_limit(fault: Fault) -> None:
    with fleet(2, on_failure="restart", max_restarts=2) as envs:
        with soon(), pytest.raises(WorkerError, match="restarted 2 times") as caught:
            envs.reset(seed=1, options=options(envs, 1, fault))
        assert 1 in caught.value.env_indices
        envs.reset(seed=1)
        envs.step(zeros(envs))


@by_turns_on_spawn("call")
@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.name)
def test_a_call_that_is_lost_is_told_and_not_repeated(envs: AsyncVectorEnv, fault: Fault) -> None:
    oracle, victim = begun(envs), envs.num_envs - 1
    with pytest.raises(EnvRaisedError, match="told to raise"):
        envs.call("suffer", int(Fault.RAISE), indices=[victim])
    oracle.assert_steps(envs, 1)
    kind = WorkerDiedError if fault in DEADLY else WorkerStuckError
    with soon(), pytest.raises(kind, match=rf"{LOST[fault]}.* not asked again") as caught:
        envs.call("suffer", int(fault), indices=[victim])
    assert f"environment {victim}" in str(caught.value)
    oracle.assert_step(envs.step(zeros(envs)), zeros(envs), [victim])
    oracle.assert_steps(envs, 10)


@pytest.mark.parametrize("where", ["step", "reset", "send", "async_reset"])
def test_what_no_pickle_can_carry_is_told_and_restarts_nobody(envs: AsyncVectorEnv, where: str) -> None:
    oracle, victim = begun(envs), envs.num_envs - 1
    pids = [process.pid for process in envs.processes]
    with pytest.raises(EnvRaisedError, match="cannot be sent to the caller's process") as caught:
        inflict(envs, where, victim, Fault.UNPICKLABLE)
    assert isinstance(caught.value, TypeError)
    assert caught.value.env_indices == (victim,)
    with pytest.raises(ResetNeeded, match=f"Environment {victim}"):
        envs.step(zeros(envs))
    oracle.assert_reset(envs.reset(seed=3), oracle.reset(3))
    oracle.assert_steps(envs, 10)
    assert [process.pid for process in envs.processes] == pids


@on_spawn_only(sharing=[])
def test_a_worker_that_dies_beside_a_call_does_not_spoil_it(envs: AsyncVectorEnv) -> None:
    oracle, victim = begun(envs), envs.num_envs - 1
    os.kill(envs.processes[1].pid or 0, signal.SIGKILL)
    assert envs.call("index", indices=[0]) == (0,)
    oracle.assert_step(envs.step(zeros(envs)), zeros(envs))
    assert envs.call("index", indices=[victim]) == (victim,)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("fault", [Fault.KILL, Fault.BAD_KEY], ids=lambda fault: fault.name)
def test_every_autoreset_mode_tells_of_a_restart_in_its_own_way(mode: AutoresetMode, fault: Fault) -> None:
    with fleet(2, on_failure="restart", max_restarts=None, autoreset_mode=mode) as envs:
        oracle, victim = Oracle(4, mode), 3
        envs.reset(seed=0)
        for number in range(25):
            hit = number in (2, 9, 10, 17)
            if mode is AutoresetMode.DISABLED and any(lone.finished for lone in oracle.lone):
                finished = np.array([lone.finished for lone in oracle.lone])
                envs.reset(options={"reset_mask": finished})
                for env in np.flatnonzero(finished):
                    oracle.lone[env].reset()
            result = envs.step(zeros(envs, {victim: fault} if hit else {}))
            # One whose step is an autoreset takes no action, and so no order to fail.
            resets = mode is AutoresetMode.NEXT_STEP and oracle.lone[3].finished
            oracle.assert_step(result, zeros(envs), [victim] if hit and not resets else [])
        assert bool(envs.rebuilt[2]) == (fault is Fault.KILL)


@pytest.mark.parametrize("backend", ["sync", "process"])
def test_seeds_follow_the_documented_rule(backend: str) -> None:
    fns = faulty_fns(2)
    kwargs: dict[str, Any] = {"on_failure": "restart", "max_restarts": None}
    envs = SyncVectorEnv(fns, **kwargs) if backend == "sync" else AsyncVectorEnv(fns, context="fork", **kwargs)
    fault = Fault.RAISE if backend == "sync" else Fault.KILL
    for first_seed in (3, 4):
        envs.reset(seed=[None, first_seed])
        seeds = []
        for _ in range(3):
            envs.step([0, fault])  # truncated
            envs.step([0, 0])  # the reset
            seeds.append(envs.np_random_seed[1])
        assert seeds == [seed_after_restart(first_seed, number) for number in (1, 2, 3)]
        assert len(set(seeds)) == 3
    envs.close()


def test_without_a_seed_there_is_none_after_a_restart() -> None:
    with fleet(1, on_failure="restart") as envs:
        draws = []
        for _ in range(2):
            envs.reset()
            envs.step(zeros(envs, {1: Fault.KILL}))
            draws.append(envs.step(zeros(envs))[0]["draw"][1].tolist())
        assert draws[0] != draws[1]


def test_all_workers_may_be_lost_at_once(start_method: str) -> None:
    with fleet(2, start_method, on_failure="restart") as envs:
        oracle = Oracle(4)
        envs.reset(seed=0)
        for process in envs.processes:
            process.kill()
        oracle.assert_step(envs.step(zeros(envs)), zeros(envs))
        oracle.assert_steps(envs, 12)
        assert envs.rebuilt.tolist() == [1] * 4


def test_a_worker_lost_in_the_middle_of_a_message_is_replaced() -> None:
    from test_raise import wait_until_its_pipe_is_full

    with fleet(2, on_failure="restart") as envs:
        oracle = Oracle(4)
        envs.reset(seed=0)
        pid, actions = envs.processes[1].pid or 0, zeros(envs, {3: Fault.HUGE_INFO})
        envs.step_async(actions)
        wait_until_its_pipe_is_full(pid)
        os.kill(pid, signal.SIGKILL)
        oracle.assert_step(envs.step_wait(), actions)
        oracle.assert_steps(envs, 12)


def test_live_views_show_the_last_observation_too() -> None:
    with fleet(2, on_failure="restart", copy=False) as envs:
        oracle = Oracle(4)
        envs.reset(seed=0)
        oracle.assert_steps(envs, 2)
        oracle.assert_step(envs.step(zeros(envs, {0: Fault.BAD_SHAPE})), zeros(envs), [0])
        oracle.assert_step(envs.step(zeros(envs, {3: Fault.CRASH})), zeros(envs), [3])
        oracle.assert_steps(envs, 12)
