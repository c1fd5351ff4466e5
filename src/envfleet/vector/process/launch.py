"""Starting worker processes, by any start method, from any script."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import sys
import threading
import types
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, final

import numpy as np
from gymnasium.vector.utils import clear_mpi_env_vars

from envfleet.vector.process.parcels import dumps_by_value
from envfleet.vector.process.worker import WorkerTask, worker_main
from envfleet.vector.shard import EnvFn

_fleet_numbers = count()
_one_at_a_time = threading.Lock()


@final
class _Pickled:
    """A task that survives the way into a process that did not inherit our memory."""

    def __init__(self, task: WorkerTask) -> None:
        self._bytes = dumps_by_value(task)

    def __call__(self, connection: Connection) -> None:
        worker_main(pickle.loads(self._bytes), connection)


@final
class _Inherited:
    """A task for a forked process: nothing needs to be picklable."""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task

    def __call__(self, connection: Connection) -> None:
        worker_main(self._task, connection)


def usable_cores() -> int:
    """The cores this process may use: its affinity, and a container's CPU quota where there is one."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, math.ceil(int(quota) / int(period))))


def start_workers(
    context: str | None, shares: Sequence[tuple[int, Sequence[EnvFn]]], daemon: bool
) -> tuple[list[BaseProcess], list[Connection]]:
    """Starts one process a share ``(first env index, functions that make its environments)``."""
    ctx: BaseContext = multiprocessing.get_context(context)
    fleet_seed = _fleet_seed()
    processes: list[BaseProcess] = []
    connections: list[Connection] = []
    try:
        for worker, (first_index, env_fns) in enumerate(shares):
            ours, theirs = ctx.Pipe()
            connections.append(ours)
            task = WorkerTask(worker, first_index, list(env_fns), os.getpid(), [fleet_seed, worker])
            processes.append(_start(ctx, task, theirs, daemon))
            theirs.close()
    except BaseException:
        for process in processes:
            process.kill()
            process.join()
        raise
    return processes, connections


def _start(ctx: Any, task: WorkerTask, connection: Connection, daemon: bool) -> BaseProcess:
    target = _Inherited(task) if ctx.get_start_method() == "fork" else _Pickled(task)
    process: BaseProcess = ctx.Process(
        target=target, args=(connection,), name=f"envfleet-worker-{task.worker}", daemon=daemon
    )
    forked = isinstance(target, _Inherited)
    with clear_mpi_env_vars(), nullcontext() if forked else _main_module_hidden():
        process.start()
    return process


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


def _fleet_seed() -> int:
    """Different for every fleet of a process; the same for a program that begins with ``np.random.seed(...)``.

    Workers seed their global generators from it: forked ones would all share the caller's state, and
    environments that draw parameters from it in their constructors would all be alike.
    """
    state = pickle.dumps(np.random.get_state(legacy=False))
    return zlib.crc32(state) * 2**20 + next(_fleet_numbers)
