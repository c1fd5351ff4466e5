"""What runs in a fork server: a process without threads that forks workers, however many threads the caller has.

A worker that a fork server starts becomes the caller's own child. The fork server forks a process, which forks the
worker and ends. The kernel gives a process that has lost its parent to the nearest ancestor that asks for orphans, and
the caller asks for them at that moment. So the caller learns exit codes as it does of any child, and workers know when
the caller ends. The caller's side is in ``launch.py``.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.process
import os
import pickle
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

import gymnasium

from envfleet.vector.engine import dump_failure
from envfleet.vector.failures import Failure
from envfleet.vector.process.worker import load_task, worker_main
from envfleet.vector.runtime import has_threads, prctl

_PR_SET_PDEATHSIG = 1

Run: TypeAlias = Callable[[bytes, Connection], None]
"""What a worker does, given what it was sent and its connection to the caller."""

_LOOK_INTERVAL = 1.0
"""Seconds after which a fork server checks that the caller lives, where the kernel does not tell."""


def serve(channel: Connection, run: Run, caller_pid: int) -> None:
    """Runs a fork server: forks workers as the caller asks for them, until the caller is gone."""
    gc.freeze()  # what was inherited is not ours to finalize
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the kernel might forget those in between
    prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)  # one that is stopped must see that its parent has ended
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


def run_pickled(payload: bytes, connection: Connection) -> None:
    """Runs the whole life of a worker that was sent its task."""
    task = load_task(payload)
    if isinstance(task, Failure):
        connection.send_bytes(dump_failure(task))
        return
    worker_main(task, connection)


def serve_fresh(channel: Connection, caller_pid: int) -> None:
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
