"""Fork servers: processes without threads that fork workers, however many threads the caller has.

A worker that a fork server starts becomes the caller's own child. The fork server forks a process, which forks the
worker and ends. The kernel gives a process that has lost its parent to the nearest ancestor that asks for orphans, and
the caller asks for them at that moment. So the caller learns exit codes as it does of any child, and workers know when
the caller ends.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import multiprocessing.process
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import popen_fork, reduction
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any, TypeAlias, final

import gymnasium
from gymnasium.vector.utils import clear_mpi_env_vars

from envfleet.vector.engine import dump_failure
from envfleet.vector.failures import Failure
from envfleet.vector.fused_env import EnvFn
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.process.worker import load_task, present_folder, worker_main
from envfleet.vector.runtime import forks_unreported, has_threads, main_module_hidden, start_quietly

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37

_LOOK_INTERVAL = 1.0
"""Seconds after which a fork server checks that the caller lives, where the kernel does not tell."""

Run: TypeAlias = Callable[[bytes, Connection], None]
"""What a worker does, given what it was sent and its connection to the caller."""


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
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(before))
    if not _prctl(_PR_SET_CHILD_SUBREAPER, 1):
        raise ForkServerError("the kernel does not hand over its workers")
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def _prctl(option: int, value: int) -> bool:
    return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)


# -- the fork server itself -------------------------------------------------------------------------------


def serve(channel: Connection, run: Run, caller_pid: int) -> None:
    """Runs a fork server: forks workers as the caller asks for them, until the caller is gone."""
    gc.freeze()  # what was inherited is not ours to finalize
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the kernel might forget those in between
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)  # one that is stopped must see that its parent has ended
    caller = _open_process(caller_pid)
    while _has_request(channel, caller, caller_pid):
        try:
            name, daemon = channel.recv()
            payload = channel.recv_bytes()
            ours, end = reduction.recv_handle(channel), reduction.recv_handle(channel)
        except (EOFError, OSError):
            return

        def target() -> None:
            channel.close()
            signal.signal(signal.SIGCHLD, on_child)
            run(payload, Connection(ours))  # noqa: B023  it runs in a copy of this very moment

        channel.send(_fork_twice(partial(_run_worker, name, daemon, target, caller, caller_pid)))
        os.close(ours)
        os.close(end)  # now only the worker has it


def _open_process(pid: int) -> int | None:
    """Returns a descriptor that tells when a process ends; None where the kernel has none, or forbids it."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(1)
    except (AttributeError, OSError):
        return None


def _has_request(channel: Connection, caller: int | None, caller_pid: int) -> bool:
    """Waits for a request, and returns whether there is one; False when the caller is gone."""
    if caller is not None:
        return channel in wait([channel, caller])
    while not channel.poll(_LOOK_INTERVAL):
        if os.getppid() != caller_pid:
            return False
    return True


def _fork_twice(work: Callable[[], int]) -> tuple[int, tuple[int, str] | None]:
    """Starts a process that does the work and has no parent here; returns its pid, or 0 and the reason for that."""
    told, telling = os.pipe()
    try:
        between = os.fork()
        if between == 0:
            try:
                os.close(told)
                _fork_once(work, telling)
            finally:
                os._exit(0)
        os.close(telling)
        telling = -1
        os.waitpid(between, 0)
        answer = os.read(told, 1 << 10)
    except OSError as error:
        return 0, (error.errno or 0, error.strerror or "")
    finally:
        os.close(told)
        if telling != -1:
            os.close(telling)
    pid, why_not = pickle.loads(answer)
    return pid, why_not


def _fork_once(work: Callable[[], int], telling: int) -> None:
    """Forks the process that does the work, once this one has ended, and writes its pid to ``telling``."""
    between = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.write(telling, pickle.dumps((0, (error.errno, error.strerror))))
        return
    if pid != 0:
        os.write(telling, pickle.dumps((pid, None)))
        return
    code = 1
    try:
        os.close(telling)
        while os.getppid() == between:
            time.sleep(1e-4)  # it is about to end
        code = work()
    finally:
        os._exit(code)


def _run_worker(name: str, daemon: bool, target: Callable[[], None], caller: int | None, caller_pid: int) -> int:
    """Runs the target as multiprocessing does in a process that the caller has forked."""
    process: Any = multiprocessing.get_context("fork").Process(target=target, name=name, daemon=daemon)
    process._parent_pid = caller_pid
    return int(process._bootstrap(parent_sentinel=caller))


_READY_WITHIN = 120.0
"""Seconds within which a fork server must have imported what environments need."""


def fresh_fork_server(env_fns: Sequence[Sequence[EnvFn]]) -> ForkServer:
    """Starts a fork server that has inherited nothing; raises if it cannot import what these functions need.

    Its workers run ``run_pickled``.
    """
    registered = dumps_by_value((present_folder(), _registered_here()))
    needed = dumps_by_value(env_fns)
    server, has_threads = _start(registered, needed)
    if has_threads:  # modules that start some when they are imported: each worker imports them for itself
        server.end()
        server, _ = _start(registered, b"")
    return server


def _start(registered: bytes, needed: bytes) -> tuple[ForkServer, bool]:
    """Starts a fork server in a new interpreter; returns also whether it has threads once it is ready."""
    ours, theirs = Pipe()
    process: BaseProcess = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, os.getpid()), name="envfleet-fork-server", daemon=True
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


def run_pickled(payload: bytes, connection: Connection) -> None:
    """Runs the whole life of a worker that was sent its task."""
    task = load_task(payload)
    if isinstance(task, Failure):
        connection.send_bytes(dump_failure(task))
        return
    worker_main(task, connection)


def _serve(channel: Connection, caller_pid: int) -> None:
    """Runs a fork server in a new interpreter, which first imports what environments need."""
    error = None
    try:
        folder, registered = pickle.loads(channel.recv_bytes())
        with suppress(OSError):
            os.chdir(folder)
        for name, spec in registered.items():
            gymnasium.registry.setdefault(name, spec)
        needed = channel.recv_bytes()
        if needed:
            pickle.loads(needed)
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    try:
        channel.send((error, has_threads()))
    except BrokenPipeError:  # the caller did not wait, or is gone
        return
    serve(channel, run_pickled, caller_pid)
