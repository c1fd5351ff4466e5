"""Starts the worker processes of a fleet: by any start method, from any script, or by a fork server."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, final

from gymnasium.vector.utils import clear_mpi_env_vars

from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.process.fork_client import ForkServer, ForkServerError, fresh_fork_server, present_folder
from envfleet.vector.process.fork_server import run_pickled
from envfleet.vector.process.shared_memory import OUT_OF_DESCRIPTORS, descriptors_text
from envfleet.vector.process.worker import WorkerTask, note_loading, worker_main
from envfleet.vector.recovery import ShardTask
from envfleet.vector.runtime import (
    ctrl_c_kept_from_children,
    fleet_seed,
    forks_unreported,
    has_threads,
    let_go_of_fork_server,
    main_module_hidden,
    start_quietly,
)


@final
class _Mark:
    """Stands before an environment in a pickle: when it is unpickled, that environment is next."""

    def __init__(self, env_index: int) -> None:
        self._env_index = env_index

    def __reduce__(self) -> tuple[Any, ...]:
        return note_loading, (self._env_index,)


def _dump_task(task: WorkerTask) -> bytes:
    """Pickles a task so that an error in unpickling can be traced to the environment that caused it."""
    shard = task.shard
    marked = [(_Mark(index), env_fn) for index, env_fn in enumerate(shard.env_fns, shard.first_index)]
    payload = dumps_by_value((replace(task, shard=replace(shard, env_fns=())), marked))
    return pickle.dumps((present_folder(), shard.first_index, payload))


@final
class _Pickled:
    """What a process does that has not inherited the caller's memory: its task travels as a pickle."""

    def __init__(self, task: WorkerTask) -> None:
        self._bytes = _dump_task(task)

    def __call__(self, connection: Connection) -> None:
        let_go_of_fork_server()
        run_pickled(self._bytes, connection)


@final
class _Inherited:
    """What a forked process does: it has inherited its task, so nothing needs to be picklable."""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task

    def __call__(self, connection: Connection) -> None:
        worker_main(self._task, connection)


@final
class _Heir:
    """What a worker does that comes from a forked fork server: it has inherited the functions of all workers."""

    def __init__(self, tasks: Sequence[ShardTask]) -> None:
        self._env_fns = [task.env_fns for task in tasks]

    def __call__(self, payload: bytes, connection: Connection) -> None:
        task: WorkerTask = pickle.loads(payload)
        worker_main(replace(task, shard=replace(task.shard, env_fns=self._env_fns[task.worker])), connection)


@final
class Launcher:
    """Starts the worker processes of one fleet.

    Forked workers come from a process without threads. If the caller has no threads, the first workers are forked from
    it, and those that take their places from a fork server, which was forked together with them. If the caller has
    threads, all workers come from a fork server that has inherited nothing, unless the user insists on "fork" or the
    tasks cannot be sent there.
    """

    def __init__(self, context: str | None, daemon: bool, tasks: Sequence[ShardTask]) -> None:
        self._context: BaseContext = multiprocessing.get_context(context)
        self._daemon = daemon
        self._fleet_seed = fleet_seed()
        self._started = count()
        self._num_first = len(tasks)
        self._fresh: ForkServer | None = None
        self._copy: ForkServer | None = None
        if tasks and self._context.get_start_method() == "fork":
            self._make_server(tasks, insists=context is not None)

    def _make_server(self, tasks: Sequence[ShardTask], insists: bool) -> None:
        threaded = has_threads()
        if threaded and insists:
            _warn_of_threads('context="fork" was asked for')
        elif threaded:
            try:
                self._fresh = fresh_fork_server([task.env_fns for task in tasks])
                return
            except Exception as error:
                _warn_of_threads(f"its environments cannot be sent to a process without ({error!r})")
        try:
            with clear_mpi_env_vars(), ctrl_c_kept_from_children():
                self._copy = ForkServer.forked(_Heir(tasks))
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}: {_cannot_start(0, error)}") from error

    def start(self, worker: int, task: ShardTask) -> tuple[BaseProcess, Connection]:
        """Starts a worker; returns its process and the connection to it, which the caller closes."""
        try:
            return self._start(worker, task)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}: {_cannot_start(worker, error)}") from error

    def _start(self, worker: int, task: ShardTask) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe()
        try:
            # The number of the start is part of the seed: one that takes another's place must not repeat its numbers.
            number = next(self._started)
            seed = [self._fleet_seed, worker, number]
            process = self._start_process(WorkerTask(worker, task, os.getpid(), seed), theirs, number)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, ours

    def _start_process(self, task: WorkerTask, connection: Connection, number: int) -> BaseProcess:
        try:
            if self._fresh is not None:
                return self._fresh.start(_name(task), self._daemon, _dump_task(task), connection)
            if self._copy is not None and number >= self._num_first:
                bare = replace(task, shard=replace(task.shard, env_fns=()))
                return self._copy.start(_name(task), self._daemon, dumps_by_value(bare), connection)
        except ForkServerError as error:
            self.end()
            if has_threads():
                _warn_of_threads(f"workers can no longer be forked elsewhere ({error})")
        return _start(self._context, task, connection, self._daemon)

    def end(self) -> None:
        """Ends the fork servers: no more workers will be started."""
        servers, self._fresh, self._copy = (self._fresh, self._copy), None, None
        for server in servers:
            if server is not None:
                server.end()


def _name(task: WorkerTask) -> str:
    return f"envfleet-worker-{task.worker}"


def _warn_of_threads(why: str) -> None:
    warnings.warn(
        f"This program has threads, and {why}. Workers are copies of it without these threads: an environment that "
        "uses torch, JAX, OpenMP or a lock may wait for them for ever. Make the fleet before there are threads, or "
        'with context="forkserver" or "spawn".',
        RuntimeWarning,
        stacklevel=2,
    )


def _cannot_start(worker: int, error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT):
        return (
            f"worker {worker} could not be started: a sandbox forbids a process, a pipe or a Unix socket, by which "
            "the caller speaks to its workers. Use SyncVectorEnv, or NativeVectorEnv."
        )
    if error.errno not in OUT_OF_DESCRIPTORS:
        return f"worker {worker} could not be started. Ask for fewer with num_workers."
    return f"worker {worker} could not be started. {descriptors_text()}"


def _start(ctx: Any, task: WorkerTask, connection: Connection, daemon: bool) -> BaseProcess:
    target = _Inherited(task) if ctx.get_start_method() == "fork" else _Pickled(task)
    process: BaseProcess = ctx.Process(target=target, args=(connection,), name=_name(task), daemon=daemon)
    forked = isinstance(target, _Inherited)
    with clear_mpi_env_vars(), forks_unreported() if forked else main_module_hidden():
        if ctx.get_start_method() == "forkserver":
            forkserver.ensure_running()  # not below, or it would bequeath what is blocked there to all it ever starts
        start_quietly(process)
    return process
