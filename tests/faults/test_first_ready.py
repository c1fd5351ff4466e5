"""Failures of single environments while the others go on: first-ready batches, restarts, fairness."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import SOON, STEP_TIMEOUT, Oracle, fleet, inflict, siblings, soon, zeros
from on_spawn import on_spawn_only
from soaking.faulty import HUGE, Fault, FaultyEnv, Habits, faulty_fns
from soaking.oracle import Lone

from envfleet.errors import AlreadyPendingCallError, NoAsyncCallError, WorkerStuckError
from envfleet.testing.timeouts import make_fifo, release
from envfleet.vector import AsyncVectorEnv


class Drive:
    """Sends and receives, each environment with actions of its own, and asks the oracle about every result."""

    def __init__(self, envs: AsyncVectorEnv, seed: int = 0) -> None:
        self.envs, self.oracle = envs, Oracle(envs.num_envs, envs.autoreset_mode, seed)
        self.actions = zeros(envs)
        self.is_out = np.zeros(envs.num_envs, np.bool_)
        self.steps: Counter[int] = Counter()
        self.told: Counter[int] = Counter()
        envs.async_reset(seed=seed)
        while sum(self.steps.values()) < envs.num_envs:
            observations, *_, infos = envs.recv()
            for place, env in enumerate(infos["env_id"].tolist()):
                self.steps[env] += 1
                np.testing.assert_array_equal(observations["draw"][place], self.oracle.lone[env].last["draw"])
        self.told.clear()

    def send(self, ids: Any, faults: dict[int, Fault] | None = None) -> None:
        """Send each of these environments on its way."""
        actions = zeros(self.envs, faults)[ids]
        self.actions[ids] = actions
        self.is_out[ids] = True
        self.envs.send(actions, ids)

    def recv(self) -> list[int]:
        """Receive a batch, compare it, return who came."""
        result = self.envs.recv(timeout=20)
        ids: list[int] = result[4].pop("env_id").tolist()
        restarted = result[4].get("restarted", np.zeros(len(ids), np.bool_))
        lost = [env for env, one in zip(ids, restarted, strict=True) if one]
        self.oracle.assert_step(result, self.actions, lost, ids)
        self.told.update(lost)
        self.steps.update(ids)
        self.is_out[ids] = False
        return ids

    def recv_resets(self, seed: int) -> None:
        """Receive what single resets with this seed have shown."""
        observations, rewards, terminated, truncated, infos = self.envs.recv(timeout=20)
        assert "restarted" not in infos
        assert not np.concatenate([rewards, terminated, truncated]).any()
        for place, env in enumerate(infos["env_id"].tolist()):
            wanted, _ = self.oracle.lone[env].reset(seed + env)
            np.testing.assert_array_equal(observations["draw"][place], wanted["draw"])

    def go_on(self, batches: int) -> None:
        """Send back whoever comes, for so many batches; then receive all that are out."""
        for _ in range(batches):
            self.send(self.recv())
        while True:
            try:
                self.recv()
            except NoAsyncCallError:
                return


@pytest.fixture(scope="module")
def envs(sharing: tuple[int, str]) -> Iterator[AsyncVectorEnv]:
    with fleet(
        *sharing,
        on_failure="restart",
        max_restarts=None,
        step_timeout=STEP_TIMEOUT,
        batch_size=sharing[0],
    ) as one:
        yield one


@on_spawn_only(fault=[Fault.RAISE, Fault.KILL])
@pytest.mark.parametrize(
    "fault", [Fault.RAISE, Fault.BAD_KEY, Fault.KILL, Fault.CRASH, Fault.HOLD_GIL], ids=lambda fault: fault.name
)
def test_a_lost_ticket_comes_back_as_a_restart(envs: AsyncVectorEnv, fault: Fault) -> None:
    drive, victim = Drive(envs), envs.num_envs - 1
    drive.send(np.arange(envs.num_envs))
    drive.go_on(7)
    if drive.oracle.lone[victim].finished:  # a step that resets takes no action, and so no order to fail
        drive.send([victim])
        drive.recv()
    drive.send(np.arange(envs.num_envs), {victim: fault})
    drive.go_on(20)
    assert drive.told == {victim: 1}


def test_a_worker_lost_while_idle_is_replaced_without_a_trace(envs: AsyncVectorEnv) -> None:
    drive, victim, rebuilt = Drive(envs, seed=5), envs.num_envs - 1, envs.rebuilt
    os.kill(envs.processes[1].pid or 0, signal.SIGKILL)
    for env in siblings(envs, victim):
        drive.send([env])
        assert drive.recv() == [env]
    drive.send(np.arange(envs.num_envs))
    drive.go_on(5)
    assert not drive.told
    assert np.flatnonzero(envs.rebuilt - rebuilt).tolist() == siblings(envs, victim)


def test_a_worker_lost_in_an_async_reset_resets_again(envs: AsyncVectorEnv) -> None:
    os.kill(envs.processes[1].pid or 0, signal.SIGSTOP)
    envs.async_reset(seed=3)
    os.kill(envs.processes[1].pid or 0, signal.SIGKILL)
    seen: dict[int, Any] = {}
    while len(seen) < envs.num_envs:
        observations, rewards, terminated, truncated, infos = envs.recv(timeout=20)
        assert not np.concatenate([rewards, terminated, truncated]).any()
        seen.update(zip(infos["env_id"].tolist(), observations["draw"], strict=True))
        assert "restarted" not in infos
    for env, env_fn in enumerate(faulty_fns(envs.num_envs)):
        np.testing.assert_array_equal(seen[env], Lone(env_fn, envs.autoreset_mode).reset(3 + env)[0]["draw"])


def test_a_worker_lost_in_a_single_reset_resets_that_one_again(envs: AsyncVectorEnv) -> None:
    drive, victim = Drive(envs, seed=7), envs.num_envs - 1
    drive.send(np.arange(envs.num_envs))
    drive.go_on(2)
    os.kill(envs.processes[1].pid or 0, signal.SIGSTOP)
    envs.async_reset(env_ids=[victim], seed=30)
    os.kill(envs.processes[1].pid or 0, signal.SIGKILL)
    drive.recv_resets(30)
    drive.send(np.arange(envs.num_envs))
    drive.go_on(6)
    assert not drive.told


def test_an_environment_is_rebuilt_from_its_single_reset_on(envs: AsyncVectorEnv) -> None:
    drive, victim, rebuilt = Drive(envs, seed=9), envs.num_envs - 1, envs.rebuilt
    drive.send(np.arange(envs.num_envs))
    drive.go_on(3)
    envs.async_reset(env_ids=victim, seed=40)
    drive.recv_resets(40)
    drive.send(np.arange(envs.num_envs))
    drive.go_on(2)
    os.kill(envs.processes[1].pid or 0, signal.SIGKILL)
    drive.send(np.arange(envs.num_envs))
    drive.go_on(4)
    assert not drive.told
    assert np.flatnonzero(envs.rebuilt - rebuilt).tolist() == siblings(envs, victim)


SIGN = 9


class SigningEnv(FaultyEnv):
    """Leaves a mark when it comes to the action SIGN."""

    def step(self, action: Any) -> Any:
        if action == SIGN:
            mark_of(self.habits.fifo).touch()
        return super().step(action)


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_a_slow_environment_neither_starves_nor_makes_others_wait(num_workers: int, tmp_path: Path) -> None:
    fifo, slow, sibling, share = make_fifo(tmp_path), 6, 7, 8 // num_workers
    fns = [partial(SigningEnv, Habits(env, 5 + env, fifo)) for env in range(8)]
    envs = AsyncVectorEnv(fns, context="fork", num_workers=num_workers, batch_size=1)
    drive = Drive(envs)
    drive.oracle.lone[slow].env.suffer = lambda fault: ""  # the oracle need not wait
    drive.send([slow, sibling], {slow: Fault.WAIT, sibling: SIGN})
    free = [env for env in range(8) if env // share != slow // share]
    if free:  # those in other workers go on meanwhile
        drive.send(free)
        go_round_until(drive, share, lambda: min(drive.steps[env] for env in free) > 3)
    assert drive.steps[slow] == drive.steps[sibling] == 1
    with pytest.raises(AlreadyPendingCallError, match=r"\[6\]"):
        envs.send([0], [slow])
    release(fifo)
    others = [env for env in range(slow) if env not in free]
    if others:  # they had to wait; now all go on
        drive.send(others)
    go_round_until(drive, share, mark_of(fifo).exists)
    # Its worker comes to the sibling when the slow one's result lies there. From now on only results that lay there
    # before may come before it: one of each other environment at most.
    for _ in range(envs.num_envs):
        if drive.steps[slow] == 1:
            drive.send(drive.recv())
    assert drive.steps[slow] > 1
    go_round_until(drive, share, lambda: min(drive.steps.values()) > 3)
    envs.close()


def go_round_until(drive: Drive, share: int, condition: Callable[[], bool]) -> None:
    """One at a time, each sent back at once. ``share`` of them are in each worker, which takes them by turns.

    Nobody comes twice while another of its worker waits. Workers are not compared with each other: one that has to be
    woken up may need longer for that than others take for many turns.
    """
    deadline, since = time.monotonic() + SOON, dict[int, set[int]]()
    while not condition():
        assert time.monotonic() < deadline, f"some were left out: {drive.steps}"
        (env,) = drive.recv()
        its_worker = range(env // share * share, (env // share + 1) * share)
        assert not since.get(env), f"{env} came twice, but not {since[env]}"
        for left in since.values():
            left.discard(env)
        since[env] = {other for other in its_worker if drive.is_out[other]}
        drive.send([env])


class GatedEnv(FaultyEnv):
    """Waits at a gate of its own, and leaves a mark there when it comes to it."""

    def suffer(self, fault: int | None) -> str:
        if fault == Fault.WAIT:
            mark_of(self.habits.fifo).touch()
        return super().suffer(fault)


def mark_of(gate: str) -> Path:
    return Path(gate).with_suffix(".reached")


def open_gate(gate: str, next_gate: str) -> None:
    """Let an environment finish; the next one of its worker is only begun when the result is published."""
    release(gate)
    with soon():
        while not mark_of(next_gate).exists():
            time.sleep(0.001)


def test_results_come_in_the_order_in_which_they_were_ready(tmp_path: Path) -> None:
    gates = [str(tmp_path / f"{env}.gate") for env in range(6)]
    for gate in gates:
        os.mkfifo(gate)
    fns = [partial(GatedEnv, Habits(env, 99, gate)) for env, gate in enumerate(gates)]
    with fleet(env_fns=fns, batch_size=1) as envs:  # 0, 1 and 2 share a worker, so do 3, 4 and 5
        envs.reset(seed=0)
        # By time, not by worker: neither one worker's after the other's, nor by turns.
        for finished in ([3, 0, 1, 4], [0, 3, 4, 1]):
            envs.send(np.full(6, Fault.WAIT))
            for env in finished:
                open_gate(gates[env], gates[env + 1])
            assert [int(envs.recv()[4]["env_id"][0]) for _ in finished] == finished
            for last in (2, 5):
                release(gates[last])
                assert envs.recv()[4]["env_id"].tolist() == [last]
            for gate in gates:
                mark_of(gate).unlink()


def test_an_expired_recv_loses_nothing(tmp_path: Path) -> None:
    fifo = make_fifo(tmp_path)
    envs = AsyncVectorEnv(faulty_fns(4, fifo), context="fork", num_workers=4, batch_size=4)
    drive = Drive(envs)
    for round_number in range(3):
        drive.send(np.arange(4), {1: Fault.WAIT} if round_number == 1 else None)
        if round_number == 1:
            for timeout in (0, 0.05):
                with pytest.raises(multiprocessing.TimeoutError, match="Nothing is lost"):
                    envs.recv(timeout=timeout)
            with pytest.raises(AlreadyPendingCallError):
                envs.step(zeros(envs))
            release(fifo)
            drive.oracle.lone[1].env.suffer = lambda fault: ""
        assert sorted(drive.recv()) == [0, 1, 2, 3]
    envs.close()


def test_much_to_say_on_both_sides_is_no_deadlock() -> None:
    """Options and infos longer than a pipe holds, for several environments of one worker."""
    fns = [partial(TalkativeEnv, Habits(i)) for i in range(4)]
    with fleet(env_fns=fns) as envs, soon(20):
        envs.async_reset(options={"map": b"x" * 2_000_000})
        assert [len(text) for text in envs.recv(timeout=20)[4]["story"]] == [2_000_000] * 4


def test_one_with_much_to_say_does_not_keep_its_siblings_from_their_turns() -> None:
    """Nobody waits for its words before all results are there: they must be read all the same."""
    with fleet(3, step_timeout=STEP_TIMEOUT) as envs, soon():
        envs.reset(seed=0)
        envs.send(zeros(envs, {0: Fault.HUGE_INFO}))
        infos = envs.recv(timeout=SOON)[4]
        assert sorted(infos["env_id"].tolist()) == list(range(6))
        assert [len(text) for text in infos["huge"] if text is not None] == [HUGE]


@pytest.mark.parametrize("where", ["send", "async_reset"])
def test_a_worker_whose_results_wait_for_others_is_not_taken_for_stuck(where: str) -> None:
    with fleet(2, step_timeout=STEP_TIMEOUT) as envs:
        envs.reset(seed=0)
        with soon(), pytest.raises(WorkerStuckError, match="environment 3 had not finished") as caught:
            inflict(envs, where, 3, Fault.LOOP)
        assert caught.value.worker == 1


class OwnKeyEnv(FaultyEnv):
    """Has a key of its own in the infos of its steps: those of a worker are of several kinds."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        return *result, {f"key {self.index}": self.index + 0.5}


def test_a_row_of_a_lost_worker_is_not_read_as_one_of_its_successors() -> None:
    """The worker publishes 0 and is lost with 1; the one in its place rebuilds 2 and publishes it, by other kinds."""
    fns = [partial(OwnKeyEnv, Habits(env)) for env in range(3)]
    with AsyncVectorEnv(fns, num_workers=1, batch_size=3, on_failure="restart", context="fork") as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.send(zeros(envs))
            envs.recv()
        envs.send(zeros(envs, {1: Fault.KILL}))
        infos = envs.recv(timeout=20)[4]
        assert infos["env_id"].tolist() == [0, 1, 2]
        assert infos["restarted"].tolist() == [False, True, False]
        assert envs.rebuilt.tolist() == [1, 0, 1]
        assert infos["key 0"].tolist() == [0.5, 0.0, 0.0]
        assert infos["key 2"].tolist() == [0.0, 0.0, 2.5]


class TalkativeEnv(FaultyEnv):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = super().reset(seed=seed)
        return observation, {**info, "story": "y" * 2_000_000}
