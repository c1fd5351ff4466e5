"""A worker process, and everything that it and the caller agree on.

A worker makes its environments, maps the block, then takes turns until it is told to end.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import final

import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.redraw import redrawn
from envfleet.vector.block import FleetLayout
from envfleet.vector.engine import Order, Report, dump_failure, dump_report
from envfleet.vector.failures import Failure
from envfleet.vector.fused_env import AnyEnv, build_envs, close_envs
from envfleet.vector.pickling import dumps
from envfleet.vector.process.shared_memory import map_block
from envfleet.vector.recovery import ShardTask
from envfleet.vector.runtime import seed_global_generators
from envfleet.vector.shard import Shard
from envfleet.vector.spaces import FleetSpaces, faces_of

# Commands.
STEP = 1
ORDER = 2
CLOSE = 3

# Kinds of tickets: what to do with the one environment they are for.
STEP_ROW = 0
STEP_ROW_WITH_PARCEL = 1
RESET_ROW = 2

# How a turn or a ticket was finished.
ALL_IN_BLOCK = 0
REPORT_FOLLOWS = 1

FOREVER = 1e9
"""Seconds that a worker waits for a turn: the command CLOSE ends it, or the end of the caller."""


@dataclass(frozen=True)
class Making:
    """What a worker says before it makes an environment."""

    env_index: int


@dataclass(frozen=True)
class Patience:
    """How to wait: so many seconds on the core, then so many seconds offering it to others, then asleep.

    Attributes:
        pause: Seconds to wait on the core.
        yield_: Seconds to wait while offering the core to others.
    """

    pause: float
    yield_: float


ASLEEP = Patience(0.0, 0.0)
_OWN_CORE = Patience(200e-6, 700e-6)
_SHARED_CORE = Patience(20e-6, 900e-6)
_SHORT_TURN = 150e-6


def worker_patience(num_workers: int, cores: int) -> Patience:
    """Returns how a worker waits between turns, for the caller and for slower workers."""
    if num_workers < cores:
        return _OWN_CORE
    return _SHARED_CORE if num_workers == cores else ASLEEP


@final
class CallerPatience:
    """How the caller waits during a turn.

    A caller without a core of its own takes time from the workers that it waits for. So it sleeps, unless turns are
    shorter than it takes to wake up.
    """

    def __init__(self, num_workers: int, cores: int) -> None:
        self._spare_cores = cores - num_workers
        self._expected = 0.0

    def now(self) -> Patience:
        """Returns how to wait for the next turn."""
        if self._spare_cores > 0:
            return _OWN_CORE
        short = self._spare_cores == 0 and self._expected < _SHORT_TURN
        return Patience(0.0, _SHORT_TURN) if short else ASLEEP

    def learn(self, seconds: float) -> None:
        """Notes how long the workers took this time."""
        self._expected += 0.1 * (seconds - self._expected)


COPY_CAME_BACK = (
    "forked, and the copy of the worker came back from there to go on with the worker's work: that copy was ended. A "
    "process that an environment forks must end by itself, by os._exit()."
)


@final
class ForkedCopies:
    """Warns of environments that have forked a copy of their worker which came back.

    Args:
        counts: (num_envs,), in the block; ``_core.end_forked_copies`` counts there.
    """

    def __init__(self, counts: npt.NDArray[np.uint64]) -> None:
        self._counts, self._told = counts, counts.copy()

    def warn(self) -> None:
        """Warns of those that were counted since the last time."""
        now = self._counts.copy()
        concerned, self._told = np.flatnonzero(now != self._told).tolist(), now
        if concerned:
            which = f"Environment{'s' if len(concerned) > 1 else ''} {', '.join(map(str, concerned))}"
            warnings.warn(f"{which} {COPY_CAME_BACK}", RuntimeWarning, stacklevel=2)


@dataclass(frozen=True)
class WorkerTask:
    """What a worker is started with.

    Attributes:
        worker: The number of the worker.
        shard: What it is to run.
        caller_pid: The caller's process, with which it ends.
        seed: The seed of its global random generators.
    """

    worker: int
    shard: ShardTask
    caller_pid: int
    seed: Sequence[int]


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker is told once all environments of the fleet exist, from which the layout of the block follows.

    Attributes:
        spaces: The spaces of the fleet.
        num_workers: How many workers the fleet has.
        patience: How the worker waits between turns.
        num_pages: How many pages the block has for large observations.
    """

    spaces: FleetSpaces
    num_workers: int
    patience: Patience
    num_pages: int


def worker_main(task: WorkerTask, connection: Connection) -> None:
    """Runs the whole life of a worker process."""
    # A forked worker inherits the caller's garbage: to finalize that is not its business, and would harm what does not
    # survive a fork, such as threads and graphics contexts.
    gc.freeze()
    # Ctrl-C reaches the whole process group; the caller decides what it means and ends us if need be.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see launch.py: it was blocked until now
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _core.exit_with_process(task.caller_pid)
    seed_global_generators(task.seed)
    pid = os.getpid()

    def announce(env_index: int) -> None:
        _end_if_copy(pid, env_index - 1)
        connection.send_bytes(dumps(Making(env_index)))

    envs, failure = build_envs(task.shard.env_fns, task.shard.first_index, announce)
    _end_if_copy(pid, task.shard.first_index + len(envs) - 1 if failure is None else failure.env_index)
    if failure is not None:
        connection.send_bytes(dump_failure(failure))
        return
    connection.send_bytes(dumps(faces_of(envs)))
    setup = pickle.loads(connection.recv_bytes())
    if setup is None:  # another worker failed to start
        close_envs(envs)
        return
    _Worker(task, envs, setup, connection).serve()


def _end_if_copy(pid: int, env_index: int) -> None:
    """Ends a copy of the worker that an environment's constructor has forked, and that has come back from there."""
    if os.getpid() != pid:
        os.write(2, f"envfleet: the constructor of environment {env_index} {COPY_CAME_BACK}\n".encode())
        os._exit(1)


@final
class _Worker:
    """A worker that has made its environments and was told where the block is."""

    def __init__(self, task: WorkerTask, envs: Sequence[AnyEnv], setup: WorkerSetup, connection: Connection) -> None:
        first = task.shard.first_index
        self._worker, self._first_index, self._connection = task.worker, first, connection
        self._patience = setup.patience
        num_envs = setup.spaces.num_envs
        control_bytes = _core.Mailroom.bytes(setup.num_workers, num_envs)
        layout = FleetLayout(
            setup.spaces,
            num_parameters=len(redrawn(task.shard.env_fns)),
            num_pages=setup.num_pages,
            control_bytes=control_bytes,
            refuse_nan=task.shard.policy.check_nan,
        )
        descriptor = reduction.recv_handle(connection)
        memory = map_block(descriptor, layout.size)
        os.close(descriptor)
        rows = layout.rows(memory, first, first + len(envs))
        arrays = layout.arrays(memory)
        # It stays for as long as this process does.
        _core.end_forked_copies(memory, arrays["progress"][first : first + len(envs)])
        self._memory = memory
        self._mailroom = _core.Mailroom(arrays["control"], setup.num_workers, num_envs, create=False)
        mode = setup.spaces.autoreset_mode
        self._shard = Shard(task.shard, envs, rows, layout.observations, layout.actions, mode)

    def serve(self) -> None:
        """Takes turns until told to end."""
        self._shard.rebuild()
        take, worker, patience = self._mailroom.take, self._worker, self._patience
        while True:
            command = take(worker, FOREVER, patience.pause, patience.yield_)
            if command is None:  # a signal came
                continue
            if command >= _core.FIRST_TICKET:
                self._serve_ticket(command - _core.FIRST_TICKET)
            elif command == STEP:
                self._answer(self._shard.step())
            elif command == ORDER:
                self._answer(self._execute(self._connection.recv_bytes()))
            elif command == CLOSE:
                failures = self._shard.close()
                self._answer(Report(failures=failures) if failures else None)
                return

    def _serve_ticket(self, ticket: int) -> None:
        env_index, kind = divmod(ticket, _core.TICKET_KINDS)
        row = env_index - self._first_index
        parcel = () if kind == STEP_ROW else pickle.loads(self._connection.recv_bytes())
        resets = kind == RESET_ROW
        report = self._shard.reset_row(row, *parcel) if resets else self._shard.step_row(row, parcel)
        if report is None:
            self._mailroom.publish(self._worker, env_index, ALL_IN_BLOCK)
            return
        payload = dump_report(report, self._first_index, row)
        self._mailroom.publish(self._worker, env_index, REPORT_FOLLOWS)
        self._connection.send_bytes(payload)

    def _execute(self, payload: bytes) -> Report | None:
        try:
            order: Order = pickle.loads(payload)
        except Exception as error:
            return Report(failures=[Failure.of(error, self._first_index, "call")])
        return self._shard.execute(order)

    def _answer(self, report: Report | None) -> None:
        if report is None:
            self._mailroom.finish(self._worker, ALL_IN_BLOCK)
            return
        payload = dump_report(report, self._first_index)
        # Said before it is sent: a long report fills the pipe until the caller, awake by now, reads it.
        self._mailroom.finish(self._worker, REPORT_FOLLOWS)
        self._connection.send_bytes(payload)


_NOTE = (
    "What makes it was sent to a worker process and could not be unpickled there: files and modules that it refers to "
    "must be found from that process too, which is in the same folder and has the same sys.path."
)

_being_loaded = 0


def note_loading(env_index: int) -> None:
    """Notes which environment of a task is unpickled next."""
    global _being_loaded
    _being_loaded = env_index


def load_task(parcel: bytes) -> WorkerTask | Failure:
    """Goes to the folder in which a task was pickled and returns the task, or why it cannot be unpickled."""
    folder, first_index, payload = pickle.loads(parcel)
    with suppress(OSError):
        os.chdir(folder)
    note_loading(first_index)
    try:
        task: WorkerTask
        task, marked = pickle.loads(payload)
    except Exception as error:
        failure = Failure.of(error, _being_loaded, "make")
        failure.note = _NOTE
        return failure
    return replace(task, shard=replace(task.shard, env_fns=[env_fn for _, env_fn in marked]))
