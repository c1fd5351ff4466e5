"""The caller's side of starting worker processes: by any start method, from any script, or by a fork server."""

from __future__ import annotations

import ctypes
import errno
import multiprocessing
import multiprocessing.process
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from multiprocessing import forkserver, popen_fork, reduction
from multiprocessing.connection import Connection, Pipe
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, final

import gymnasium
from gymnasium.vector.utils import clear_mpi_env_vars

from envfleet.vector.fused_env import EnvFn
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.process.fork_server import Run, run_pickled, serve, serve_fresh
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
    prctl,
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
    return pickle.dumps((_present_folder(), shard.first_index, payload))


def _present_folder() -> str:
    """Returns the present folder; empty if that has been removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


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


# -- the caller's side of fork servers --------------------------------------------------------------------

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


@final
class ForkServerError(Exception):
    """The fork server is gone, or the kernel does not hand its workers over."""


@final
class ForkServer:
    """The caller's side of a fork server.

    Args:
        channel: The connection to the fork server.
        end: Ends the fork server.
    """

    def __init__(self, channel: Connection, end: Callable[[], None]) -> None:
        self._channel, self._end = channel, end

    @classmethod
    def forked(cls, run: Run) -> ForkServer:
        """Forks a fork server from this process, which should have no threads; workers inherit all that it inherits."""
        caller_pid = os.getpid()
        ours, theirs = Pipe()
        try:
            with forks_unreported():
                pid = os.fork()
            if pid == 0:
                try:
                    ours.close()
                    serve(theirs, run, caller_pid)
                finally:
                    os._exit(1)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

        def end() -> None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

        return cls(ours, end)

    def start(self, name: str, daemon: bool, payload: bytes, connection: Connection) -> BaseProcess:
        """Has a worker forked that runs ``run(payload, connection)``; raises ForkServerError if that is impossible."""
        process = Adopted(name, daemon, lambda end: self._start(name, daemon, payload, connection, end))
        process.start()
        return process

    def _start(self, name: str, daemon: bool, payload: bytes, connection: Connection, end: int) -> int:
        with _orphans_adopted():
            try:
                self._channel.send((name, daemon))
                self._channel.send_bytes(payload)
                for descriptor in connection.fileno(), end:
                    reduction.send_handle(self._channel, descriptor, None)
                pid, error = self._channel.recv()
            except (EOFError, BrokenPipeError, ConnectionResetError) as gone:
                raise ForkServerError("it is gone") from gone
        if error is not None:
            raise OSError(*error)
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            os.kill(pid, signal.SIGKILL)
            raise ForkServerError("the kernel does not hand over its workers") from None
        return int(pid)

    def end(self) -> None:
        """Ends the fork server, but not its workers."""
        self._channel.close()
        self._end()


@final
class Adopted(BaseProcess):
    """A worker that a fork server started, as multiprocessing shows its processes.

    Args:
        name: The name of the process.
        daemon: Whether it may have no children, and is ended when the caller ends.
        start: Has the worker started and returns its pid, given a descriptor that stays open while the worker lives.
    """

    _start_method = "fork"

    def __init__(self, name: str, daemon: bool, start: Callable[[int], int]) -> None:
        super().__init__(name=name, daemon=daemon)
        self.launch: Callable[[int], int] | None = start

    @staticmethod
    def _Popen(process: Adopted) -> _Popen:  # noqa: N802  multiprocessing's name
        return _Popen(process)


@final
class _Popen(popen_fork.Popen):
    """Starts an ``Adopted`` process, and knows when it ends."""

    def _launch(self, process: Any) -> None:
        sentinel, end = os.pipe()
        try:
            self.pid = process.launch(end)
        except BaseException:
            os.close(sentinel)
            raise
        finally:
            os.close(end)
            process.launch = None  # it holds on to what only a start needs
        self.sentinel = sentinel
        self.finalizer = Finalize(self, os.close, (sentinel,))


@contextmanager
def _orphans_adopted() -> Iterator[None]:
    """Makes this process the parent of descendants whose parents end meanwhile."""
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(before))
    if not prctl(_PR_SET_CHILD_SUBREAPER, 1):
        raise ForkServerError("the kernel does not hand over its workers")
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)


_READY_WITHIN = 120.0
"""Seconds within which a fork server must have imported what environments need."""


def fresh_fork_server(env_fns: Sequence[Sequence[EnvFn]]) -> ForkServer:
    """Starts a fork server that has inherited nothing; raises if it cannot import what these functions need.

    Its workers run ``run_pickled``.
    """
    registered = dumps_by_value((_present_folder(), _registered_here()))
    needed = dumps_by_value(env_fns)
    server, has_threads = _start_fresh(registered, needed)
    if has_threads:  # modules that start some when they are imported: each worker imports them for itself
        server.end()
        server, _ = _start_fresh(registered, b"")
    return server


def _start_fresh(registered: bytes, needed: bytes) -> tuple[ForkServer, bool]:
    """Starts a fork server in a new interpreter; returns also whether it has threads once it is ready."""
    ours, theirs = Pipe()
    process: BaseProcess = multiprocessing.get_context("spawn").Process(
        target=serve_fresh, args=(theirs, os.getpid()), name="envfleet-fork-server", daemon=True
    )
    try:
        with clear_mpi_env_vars(), main_module_hidden():
            start_quietly(process)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    # No child that others should know of, or wait for, or end.
    getattr(multiprocessing.process, "_children", set()).discard(process)

    def end() -> None:
        process.kill()
        process.join()
        process.close()

    server = ForkServer(ours, end)
    try:
        return server, _prepare(ours, registered, needed)
    except BaseException:
        server.end()
        raise


def _prepare(channel: Connection, registered: bytes, needed: bytes) -> bool:
    """Has a fork server import what environments need; returns whether it has threads then."""
    try:
        channel.send_bytes(registered)
        channel.send_bytes(needed)
        if not channel.poll(_READY_WITHIN):
            raise TimeoutError(f"it was not ready after {_READY_WITHIN:g} s")
        error, has_threads = channel.recv()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise RuntimeError("it ended while it imported what environments need") from None
    if error is not None:
        raise RuntimeError(error)
    return bool(has_threads)


def _registered_here() -> dict[str, Any]:
    """Returns the environments that this program has registered; Gymnasium's own are registered everywhere."""
    return {
        name: spec
        for name, spec in gymnasium.registry.items()
        if not str(spec.entry_point).startswith("gymnasium.") and _is_portable(spec)
    }


def _is_portable(spec: Any) -> bool:
    try:
        dumps_by_value(spec)
    except Exception:
        return False
    return True
