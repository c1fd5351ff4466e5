"""A fork server that has inherited nothing, for callers that have threads."""

from __future__ import annotations

import multiprocessing.process
import os
import pickle
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from multiprocessing.process import BaseProcess
from typing import Any

import gymnasium
from gymnasium.vector.utils import clear_mpi_env_vars

from envfleet.vector.failures import Failure
from envfleet.vector.pickling import dump_failure, dumps_by_value
from envfleet.vector.process.fork_server import ForkServer, serve
from envfleet.vector.process.sent_task import load_task, present_folder
from envfleet.vector.process.starting import main_module_hidden, start_quietly
from envfleet.vector.process.threads import has_threads
from envfleet.vector.process.worker import worker_main
from envfleet.vector.share import EnvFn

_READY_WITHIN = 120.0
"""Seconds within which it must have imported what environments need."""


def fresh_fork_server(env_fns: Sequence[Sequence[EnvFn]]) -> ForkServer:
    """One that runs ``run_pickled`` in its workers; raises if it cannot have what these functions need."""
    registered = dumps_by_value((present_folder(), _registered_here()))
    needed = dumps_by_value(env_fns)
    server, has_threads = _start(registered, needed)
    if has_threads:  # modules that start some when they are imported: each worker imports them for itself
        server.end()
        server, _ = _start(registered, b"")
    return server


def _start(registered: bytes, needed: bytes) -> tuple[ForkServer, bool]:
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
    """Has it import what environments need; returns whether it has threads then."""
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
    """Environments that a program has registered; those of Gymnasium are registered everywhere."""
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
    """The whole life of a worker that was sent its task."""
    task = load_task(payload)
    if isinstance(task, Failure):
        connection.send_bytes(dump_failure(task))
        return
    worker_main(task, connection)


def _serve(channel: Connection, caller_pid: int) -> None:
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
