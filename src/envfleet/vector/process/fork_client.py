"""The caller's side of fork servers: processes that fork workers for a caller that should not fork them itself.

A fork server is forked from the caller, or started in a new interpreter and told what to import. It forks a worker
whenever it is asked to; the worker becomes a child of the caller's. What runs in a fork server is in
``fork_server.py``.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.process
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import popen_fork, reduction
from multiprocessing.connection import Connection, Pipe
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, final

import gymnasium
from gymnasium.vector.utils import clear_mpi_env_vars

from envfleet.vector.fused_env import EnvFn
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.process.fork_server import Run, serve, serve_fresh
from envfleet.vector.runtime import forks_unreported, main_module_hidden, prctl, start_quietly

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
    registered = dumps_by_value((present_folder(), _registered_here()))
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


def present_folder() -> str:
    """Returns the present folder; empty if that has been removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""
