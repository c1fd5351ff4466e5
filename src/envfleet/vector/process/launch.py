"""Starting worker processes, by any start method, from any script."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import count
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, final

from gymnasium.vector.utils import clear_mpi_env_vars

from envfleet.vector.global_generators import fleet_seed
from envfleet.vector.parcels import dumps_by_value
from envfleet.vector.process.block import OUT_OF_DESCRIPTORS, descriptors_text
from envfleet.vector.process.worker import WorkerTask, worker_main
from envfleet.vector.share import ShardTask

_one_at_a_time = threading.Lock()


@final
class _Pickled:
    """A task that survives the way into a process that did not inherit our memory."""

    def __init__(self, task: WorkerTask) -> None:
        self._bytes = dumps_by_value(task)

    def __call__(self, connection: Connection) -> None:
        _let_go_of_fork_server()
        worker_main(pickle.loads(self._bytes), connection)


@final
class _Inherited:
    """A task for a forked process: nothing needs to be picklable."""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task

    def __call__(self, connection: Connection) -> None:
        worker_main(self._task, connection)


@final
class Launcher:
    """Starts worker processes of one fleet."""

    def __init__(self, context: str | None, daemon: bool) -> None:
        self._context: BaseContext = multiprocessing.get_context(context)
        self._daemon = daemon
        self._fleet_seed = fleet_seed()
        self._started = count()

    def start(self, worker: int, task: ShardTask) -> tuple[BaseProcess, Connection]:
        """Starts one; the connection is to be closed by whoever gets it."""
        try:
            return self._start(worker, task)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}: {_cannot_start(worker, error)}") from error

    def _start(self, worker: int, task: ShardTask) -> tuple[BaseProcess, Connection]:
        ours, theirs = self._context.Pipe()
        try:
            # The number of the start is part of the seed: one that takes another's place must not repeat its numbers.
            seed = [self._fleet_seed, worker, next(self._started)]
            process = _start(self._context, WorkerTask(worker, task, os.getpid(), seed), theirs, self._daemon)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, ours


def _cannot_start(worker: int, error: OSError) -> str:
    if error.errno not in OUT_OF_DESCRIPTORS:
        return f"worker {worker} could not be started. Ask for fewer with num_workers."
    return f"worker {worker} could not be started. {descriptors_text()}"


def _start(ctx: Any, task: WorkerTask, connection: Connection, daemon: bool) -> BaseProcess:
    target = _Inherited(task) if ctx.get_start_method() == "fork" else _Pickled(task)
    process: BaseProcess = ctx.Process(
        target=target, args=(connection,), name=f"envfleet-worker-{task.worker}", daemon=daemon
    )
    forked = isinstance(target, _Inherited)
    with clear_mpi_env_vars(), nullcontext() if forked else _main_module_hidden():
        if ctx.get_start_method() == "forkserver":
            forkserver.ensure_running()  # not below, or it would bequeath what is blocked there to all it ever starts
        with _a_pipe(), _a_pipe():
            pass  # multiprocessing takes two, and would forget the first if there were no second
        with _ctrl_c_kept_from_children():
            process.start()
    return process


def _let_go_of_fork_server() -> None:
    """In a worker that a fork server started: it does not keep the fork server alive.

    Which ends when the last process does that holds its pipe, and with its end wakes workers that are stopped, see
    cpp/engine/watchdog.h: no stopped worker may hold it. Workers never start processes by this fork server.
    """
    server: Any = getattr(forkserver, "_forkserver", None)
    if forkserver.get_inherited_fds() is not None and server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


@contextmanager
def _a_pipe() -> Iterator[None]:
    ends = os.pipe()
    try:
        yield
    finally:
        for end in ends:
            os.close(end)


@contextmanager
def _ctrl_c_kept_from_children() -> Iterator[None]:
    """A terminal sends Ctrl-C to workers too: those that do not ignore it yet would each print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Keeps spawn and forkserver from running the user's script again in every worker.

    They import the main module so that pickle finds what it defines; that is what forces the
    ``if __name__ == "__main__"`` guard on users. We need no such import, since cloudpickle carries what the
    main module defines by value.
    """
    with _one_at_a_time:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main
