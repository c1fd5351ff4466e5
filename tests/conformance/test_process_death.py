"""A worker that dies is named, at once and until reset() revives the fleet, which can be closed at any time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from process_fleets import NUM_ENVS, SOON, assert_died, assert_gone, process_fleet, within, worker_of

from envfleet.errors import ClosedEnvironmentError, WorkerError
from envfleet.testing.envs import EXIT_CODE, Command, CounterConfig, CounterEnv, trouble_fns
from envfleet.testing.timeouts import make_fifo, release
from envfleet.vector import AsyncVectorEnv

pytestmark = pytest.mark.usefixtures("nothing_left_behind")

VICTIM = 3
ZEROS = np.zeros(NUM_ENVS, np.int64)
RESETS: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "reset": lambda envs: envs.reset(),
    "seeded reset": lambda envs: envs.reset(seed=1),
}
OPERATIONS: dict[str, Callable[[AsyncVectorEnv], Any]] = {
    "step": lambda envs: envs.step(ZEROS),
    "call": lambda envs: envs.call("describe", "you"),
    "get_attr": lambda envs: envs.get_attr("index"),
    "set_attr": lambda envs: envs.set_attr("tag", 1),
}


def order(command: int) -> Any:
    actions = ZEROS.copy()
    actions[VICTIM] = command
    return actions


def kill(envs: AsyncVectorEnv, env_index: int = VICTIM) -> tuple[int, ...]:
    """Kill the worker of an environment, wait until it is dead, return its environments."""
    pid, env_indices = worker_of(envs, env_index)
    os.kill(pid, signal.SIGKILL)
    for process in envs.processes:
        if process.pid == pid:
            process.join(SOON)
            assert not process.is_alive()
    return env_indices


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_worker_killed_between_operations_is_named(name: str) -> None:
    with process_fleet() as envs:
        envs.reset()
        pids = [process.pid for process in envs.processes if process.pid is not None]
        env_indices = kill(envs)
        for _ in range(2):
            assert_died(partial(OPERATIONS[name], envs), env_indices, "SIGKILL")
        with within(SOON):
            envs.close()
        assert_gone(pids)
        with pytest.raises(ClosedEnvironmentError):
            envs.reset()


@pytest.mark.parametrize("name", RESETS)
def test_a_reset_names_a_worker_killed_before_it_and_the_next_one_revives_the_fleet(name: str) -> None:
    with process_fleet() as envs:
        first, _ = envs.reset(seed=1)
        env_indices = kill(envs)
        assert_died(partial(RESETS[name], envs), env_indices, "SIGKILL")
        with within(SOON):
            RESETS[name](envs)
            again, _ = envs.reset(seed=1)
        np.testing.assert_array_equal(again[:, [0, 4]], first[:, [0, 4]])  # not how often it was reset
        assert len(envs.call("process_id")) == NUM_ENVS


def test_every_later_operation_says_the_same(start_method: str) -> None:
    with process_fleet(context=start_method) as envs:
        envs.reset()
        env_indices = kill(envs)
        for _ in range(2):
            for operation in OPERATIONS.values():
                assert_died(partial(operation, envs), env_indices, "SIGKILL")


@pytest.mark.parametrize(
    ("command", "cause"),
    [(Command.KILL, "SIGKILL"), (Command.EXIT, str(EXIT_CODE)), (Command.CRASH, "SIGSEGV")],
    ids=["killed", "exited", "crashed"],
)
@pytest.mark.parametrize("where", ["step", "reset", "call"])
def test_a_worker_that_dies_at_work_is_named(command: Command, cause: str, where: str) -> None:
    fatal: dict[str, Callable[[AsyncVectorEnv], Any]] = {
        "step": lambda envs: envs.step(order(command)),
        "reset": lambda envs: envs.reset(
            options=[{"command": int(command)} if i == VICTIM else None for i in range(NUM_ENVS)]
        ),
        "call": lambda envs: envs.call("obey", int(command), indices=[VICTIM]),
    }
    with process_fleet() as envs:
        envs.reset()
        _, env_indices = worker_of(envs, VICTIM)
        assert_died(lambda: fatal[where](envs), env_indices, cause)
        for operation in OPERATIONS.values():
            assert_died(partial(operation, envs), env_indices, cause)
        with within(SOON):
            envs.close()


def test_a_worker_that_dies_at_work_is_named_by_every_start_method(start_method: str) -> None:
    with process_fleet(context=start_method) as envs:
        envs.reset()
        _, env_indices = worker_of(envs, VICTIM)
        assert_died(lambda: envs.step(order(Command.KILL)), env_indices, "SIGKILL")
        assert_died(lambda: envs.step(ZEROS), env_indices, "SIGKILL")


def test_a_death_ends_a_wait_before_its_timeout() -> None:
    with process_fleet() as envs:
        envs.reset()
        _, env_indices = worker_of(envs, VICTIM)
        envs.step_async(order(Command.KILL))
        assert_died(lambda: envs.step_wait(timeout=60), env_indices, "SIGKILL")


def test_a_hanging_worker_that_is_killed_is_named(tmp_path: Path) -> None:
    with process_fleet(trouble_fns(NUM_ENVS, fifo=make_fifo(tmp_path))) as envs:
        envs.reset()
        pid, env_indices = worker_of(envs, VICTIM)
        envs.step_async(order(Command.HANG))
        os.kill(pid, signal.SIGKILL)
        assert_died(envs.step_wait, env_indices, "SIGKILL")


def test_the_death_of_all_workers_names_the_first() -> None:
    with process_fleet() as envs:
        envs.reset()
        _, env_indices = worker_of(envs, 0)
        for process in envs.processes:
            process.kill()
            process.join(SOON)
        assert_died(lambda: envs.step(ZEROS), env_indices, "SIGKILL")
        assert_died(lambda: envs.step(ZEROS), env_indices, "SIGKILL")
        with within(SOON):
            envs.reset()
            envs.step(ZEROS)


def test_the_death_of_a_worker_beside_a_working_caller_is_named() -> None:
    with process_fleet(caller_works=True) as envs:
        envs.reset()
        pid, env_indices = worker_of(envs, NUM_ENVS - 1)
        assert pid != os.getpid()
        os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            assert_died(lambda: envs.step(ZEROS), env_indices, "SIGKILL")


def test_an_environment_that_leaves_the_interpreter_is_named() -> None:
    with process_fleet([LeavingEnv] * NUM_ENVS) as envs:
        envs.reset()
        with within(SOON), pytest.raises(WorkerError, match="7"):
            envs.step(ZEROS)
        with within(SOON):
            envs.close()


class LeavingEnv(CounterEnv):
    def __init__(self) -> None:
        super().__init__(CounterConfig(ending="never"))

    def step(self, action: Any) -> Any:
        raise SystemExit(7)


@pytest.mark.parametrize("how", [{}, {"timeout": 1}, {"terminate": True}], ids=str)
def test_a_fleet_with_a_dead_worker_closes_the_others(how: dict[str, Any], tmp_path: Path) -> None:
    with process_fleet(trouble_fns(NUM_ENVS, close_log=str(tmp_path))) as envs:
        envs.reset()
        env_indices = kill(envs)
        with within(SOON):
            envs.close(**how)
        assert envs.closed
        if not how.get("terminate"):
            closed = {int(log.name) for log in tmp_path.iterdir()}
            assert closed == set(range(NUM_ENVS)) - set(env_indices)


def test_a_stopped_worker_times_out_and_loses_nothing() -> None:
    with process_fleet() as envs:
        envs.reset()
        pid, _ = worker_of(envs, VICTIM)
        os.kill(pid, signal.SIGSTOP)
        envs.step_async(np.full(NUM_ENVS, 4))
        with pytest.raises(multiprocessing.TimeoutError):
            envs.step_wait(timeout=0.05)
        os.kill(pid, signal.SIGCONT)
        assert envs.step_wait()[0][:, 2:4].tolist() == [[1, 4]] * NUM_ENVS
        assert envs.step(np.full(NUM_ENVS, 5))[0][:, 2:4].tolist() == [[2, 5]] * NUM_ENVS


def test_a_stopped_worker_does_not_keep_a_fleet_open() -> None:
    with process_fleet() as envs:
        envs.reset()
        pid, _ = worker_of(envs, VICTIM)
        os.kill(pid, signal.SIGSTOP)
        with within(SOON):
            envs.close(timeout=0.2)
        assert_gone([pid])


def test_a_hanging_environment_does_not_keep_a_fleet_open(tmp_path: Path) -> None:
    fifo = make_fifo(tmp_path)
    with process_fleet(trouble_fns(NUM_ENVS, fifo=fifo)) as envs:
        envs.reset()
        pids = [process.pid for process in envs.processes if process.pid is not None]
        envs.step_async(order(Command.HANG))
        with within(2 * SOON):
            envs.close()
        assert_gone(pids)


def test_a_released_environment_lets_a_fleet_close_in_peace(tmp_path: Path) -> None:
    fifo, log = make_fifo(tmp_path), tmp_path / "log"
    log.mkdir()
    with process_fleet(trouble_fns(NUM_ENVS, fifo=fifo, close_log=str(log))) as envs:
        envs.reset()
        envs.step_async(order(Command.HANG))
        release(fifo)
        envs.close()
        assert len(list(log.iterdir())) == NUM_ENVS
