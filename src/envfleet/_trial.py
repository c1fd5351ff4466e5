"""Measures an unknown environment in a separate process, where it can do no harm."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from multiprocessing.process import BaseProcess
from typing import Any, final

from envfleet import _core
from envfleet.plan import StepCost, measure_step
from envfleet.vector.fused_env import EnvFn
from envfleet.vector.pickling import dumps_by_value
from envfleet.vector.runtime import AwakeClock, forks_unreported, has_threads, main_module_hidden, start_quietly

TIME_LIMIT = 20.0
"""In seconds. An environment that needs more time for its first steps runs in worker processes."""

_GRACE = 1.0
_LOOK_EVERY = 0.05


@final
class TrialRaisedError(Exception):
    """The environment raised, or could not be sent to a separate process; the message says which."""


@final
class TrialLostError(Exception):
    """The environment ended or hung the process that measured it; the message completes a sentence about it."""


def measure_apart(env_fn: EnvFn) -> StepCost:
    """Returns the result of ``measure_step``, from a process that may crash, end or hang without harm to this one.

    If this process has no threads, the other one is a fork of it. If it has threads, a fork would lack them, and an
    environment might wait for them forever. Then the other one is a new process, to which the function is sent.
    """
    ours, theirs = Pipe()
    try:
        try:
            process = _start(env_fn, theirs)
        finally:
            theirs.close()
        try:
            return _result(process, ours)
        finally:
            _end(process)
    finally:
        ours.close()


def _start(env_fn: EnvFn, connection: Connection) -> BaseProcess:
    if multiprocessing.current_process().daemon:
        raise TrialRaisedError("this process is a daemon of multiprocessing, which can have no children")
    forked = not has_threads()
    target: Callable[[Connection, int], None] = _Trial(env_fn) if forked else _pickled(env_fn)
    context: Any = multiprocessing.get_context("fork" if forked else "spawn")
    process: BaseProcess = context.Process(target=target, args=(connection, os.getpid()), name="envfleet-trial")
    with forks_unreported() if forked else main_module_hidden():
        start_quietly(process)
    return process


def _result(process: BaseProcess, connection: Connection) -> StepCost:
    clock = AwakeClock(_LOOK_EVERY)
    while not connection.poll(_LOOK_EVERY):
        if not process.is_alive() and not connection.poll(0):
            break  # a child of the environment's may hold the other end
        if clock.now() > TIME_LIMIT:
            raise TrialLostError(f"had not taken a few steps after {TIME_LIMIT:g} s")
    try:
        result = connection.recv()
    except (EOFError, OSError):
        process.join(_GRACE)
        raise TrialLostError(f"ended its process (exit code {process.exitcode})") from None
    if isinstance(result, StepCost):
        return result
    raise TrialRaisedError(result)


def _end(process: BaseProcess) -> None:
    process.join(_GRACE)
    if process.is_alive():
        process.kill()
    process.join()
    process.close()


def _pickled(env_fn: EnvFn) -> _PickledTrial:
    try:
        return _PickledTrial(dumps_by_value(env_fn))
    except Exception as error:
        raise TrialRaisedError(
            f"this program has threads, and to a process without it cannot be sent: {type(error).__name__}: {error}"
        ) from error


@final
class _Trial:
    def __init__(self, env_fn: EnvFn) -> None:
        self._env_fn = env_fn

    def __call__(self, connection: Connection, caller_pid: int) -> None:
        _tell(connection, caller_pid, lambda: self._env_fn)


@final
class _PickledTrial:
    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def __call__(self, connection: Connection, caller_pid: int) -> None:
        _tell(connection, caller_pid, lambda: pickle.loads(self._payload))


def _tell(connection: Connection, caller_pid: int, get: Callable[[], EnvFn]) -> None:
    _core.exit_with_process(caller_pid)
    pid = os.getpid()
    try:
        result: StepCost | str = measure_step(get())
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    if os.getpid() != pid:
        os._exit(1)  # a copy that the environment has forked
    connection.send(result)
