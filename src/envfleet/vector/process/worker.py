"""A worker process: makes its environments, maps the block, then takes turns until told to end."""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import final

from envfleet import _core
from envfleet.episodes import redrawn
from envfleet.vector.failures import Failure
from envfleet.vector.block import FleetLayout
from envfleet.vector.global_generators import seed_global_generators
from envfleet.vector.fused_env import AnyEnv
from envfleet.vector.engine import Order, Report
from envfleet.vector.pickling import dump_failure, dump_report, dumps
from envfleet.vector.process import protocol
from envfleet.vector.process.shared_memory import map_block
from envfleet.vector.process.copies import COPY_CAME_BACK
from envfleet.vector.process.patience import Patience
from envfleet.vector.shard import Shard
from envfleet.vector.share import ShardTask, build_envs, close_envs
from envfleet.vector.spaces import FleetSpaces, faces_of


@dataclass(frozen=True)
class WorkerTask:
    """What a worker is started with."""

    worker: int
    shard: ShardTask
    caller_pid: int
    seed: Sequence[int]


@dataclass(frozen=True)
class Berth:
    """What a worker is told once all environments of the fleet exist: the spaces fix the block's layout."""

    spaces: FleetSpaces
    num_workers: int
    patience: Patience
    num_pages: int


def worker_main(task: WorkerTask, connection: Connection) -> None:
    """The whole life of a worker process."""
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
        connection.send_bytes(dumps(protocol.Making(env_index)))

    envs, failure = build_envs(task.shard.env_fns, task.shard.first_index, announce)
    _end_if_copy(pid, task.shard.first_index + len(envs) - 1 if failure is None else failure.env_index)
    if failure is not None:
        connection.send_bytes(dump_failure(failure))
        return
    connection.send_bytes(dumps(faces_of(envs)))
    berth = pickle.loads(connection.recv_bytes())
    if berth is None:  # another worker failed to start
        close_envs(envs)
        return
    _Worker(task, envs, berth, connection).serve()


def _end_if_copy(pid: int, env_index: int) -> None:
    """Ends a copy of the worker that an environment's constructor has forked, and that has come back from there."""
    if os.getpid() != pid:
        os.write(2, f"envfleet: the constructor of environment {env_index} {COPY_CAME_BACK}\n".encode())
        os._exit(1)


@final
class _Worker:
    def __init__(self, task: WorkerTask, envs: Sequence[AnyEnv], berth: Berth, connection: Connection) -> None:
        first = task.shard.first_index
        self._worker, self._first_index, self._connection = task.worker, first, connection
        self._patience = berth.patience
        num_envs = berth.spaces.num_envs
        control_bytes = _core.Mailroom.bytes(berth.num_workers, num_envs)
        layout = FleetLayout(
            berth.spaces,
            num_parameters=len(redrawn(task.shard.env_fns)),
            num_pages=berth.num_pages,
            control_bytes=control_bytes,
            refuse_nan=task.shard.care.check_nan,
        )
        descriptor = reduction.recv_handle(connection)
        memory = map_block(descriptor, layout.size)
        os.close(descriptor)
        rows = layout.rows(memory, first, first + len(envs))
        arrays = layout.arrays(memory)
        # It stays for as long as this process does.
        _core.end_forked_copies(memory, arrays["progress"][first : first + len(envs)])
        self._memory = memory
        self._mailroom = _core.Mailroom(arrays["control"], berth.num_workers, num_envs, create=False)
        mode = berth.spaces.autoreset_mode
        self._shard = Shard(task.shard, envs, rows, layout.observations, layout.actions, mode)

    def serve(self) -> None:
        """Takes turns until told to end."""
        self._shard.rebuild()
        take, worker, patience = self._mailroom.take, self._worker, self._patience
        while True:
            command = take(worker, protocol.FOREVER, patience.pause, patience.yield_)
            if command is None:  # a signal came
                continue
            if command >= _core.FIRST_TICKET:
                self._serve_ticket(command - _core.FIRST_TICKET)
            elif command == protocol.STEP:
                self._answer(self._shard.step())
            elif command == protocol.ORDER:
                self._answer(self._execute(self._connection.recv_bytes()))
            elif command == protocol.CLOSE:
                failures = self._shard.close()
                self._answer(Report(failures=failures) if failures else None)
                return

    def _serve_ticket(self, ticket: int) -> None:
        env_index, kind = divmod(ticket, _core.TICKET_KINDS)
        row = env_index - self._first_index
        parcel = () if kind == protocol.STEP_ROW else pickle.loads(self._connection.recv_bytes())
        resets = kind == protocol.RESET_ROW
        report = self._shard.reset_row(row, *parcel) if resets else self._shard.step_row(row, parcel)
        if report is None:
            self._mailroom.publish(self._worker, env_index, protocol.ALL_IN_BLOCK)
            return
        payload = dump_report(report, self._first_index, row)
        self._mailroom.publish(self._worker, env_index, protocol.REPORT_FOLLOWS)
        self._connection.send_bytes(payload)

    def _execute(self, payload: bytes) -> Report | None:
        try:
            order: Order = pickle.loads(payload)
        except Exception as error:
            return Report(failures=[Failure.of(error, self._first_index, "call")])
        return self._shard.execute(order)

    def _answer(self, report: Report | None) -> None:
        if report is None:
            self._mailroom.finish(self._worker, protocol.ALL_IN_BLOCK)
            return
        payload = dump_report(report, self._first_index)
        # Said before it is sent: a long report fills the pipe until the caller, awake by now, reads it.
        self._mailroom.finish(self._worker, protocol.REPORT_FOLLOWS)
        self._connection.send_bytes(payload)
