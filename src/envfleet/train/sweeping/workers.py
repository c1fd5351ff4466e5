"""Processes that train several trials of a sweep at once. What they find goes to the one process that has the study."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias, final

import gymnasium

from envfleet import _core
from envfleet._references import named
from envfleet.train.algorithms.registry import ALGORITHMS, Algorithm
from envfleet.train.sweeping.trial import TrialOutcome, TrialTask, run_trial
from envfleet.vector.pickling import dumps_by_value, portable
from envfleet.vector.runtime import main_module_hidden, start_quietly

_LOOK_SECONDS = 0.2

Evaluated: TypeAlias = Callable[[int, int, float], bool]
"""Takes a trial's number, which of its evaluations it is, and its mean return; says whether the trial is to end."""


@dataclass(frozen=True)
class _Evaluation:
    place: int
    value: float


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: TrialTask | None = None


@final
class Workers:
    """A number of processes, each with one trial at a time. Used as a context manager, at whose end they are ended."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: list[_Worker] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            self._end(worker)

    @property
    def free(self) -> bool:
        """Whether another trial can be taken."""
        return self.busy < self._count

    @property
    def busy(self) -> int:
        """How many trials are under way."""
        return sum(worker.task is not None for worker in self._workers)

    def give(self, task: TrialTask) -> None:
        """Have a trial trained by a process that has none."""
        worker = next((worker for worker in self._workers if worker.task is None), None) or self._start()
        worker.task = task
        with suppress(OSError):  # one that has died meanwhile is found by outcomes()
            worker.connection.send_bytes(_packed(task))

    def interrupt(self) -> None:
        """Have all trials saved and ended where they stand."""
        for worker in self._workers:
            if worker.task is not None and worker.process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGTERM)

    def outcomes(self, evaluated: Evaluated) -> Iterator[tuple[TrialTask, TrialOutcome | int]]:
        """Wait a moment; yields the trials that ended, each with its outcome, or with its process's exit code."""
        ready = wait([worker.connection for worker in self._workers if worker.task is not None], _LOOK_SECONDS)
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            task = worker.task
            assert task is not None
            try:
                message = worker.connection.recv()
                if isinstance(message, _Evaluation):
                    worker.connection.send(evaluated(task.number, message.place, message.value))
                    continue
            except (EOFError, OSError):
                worker.process.join()
                message = worker.process.exitcode or 0
                self._end(worker)
                self._workers.remove(worker)
            worker.task = None
            yield task, message

    def _start(self) -> _Worker:
        ours, theirs = Pipe()
        context: Any = multiprocessing.get_context("spawn")
        process = context.Process(target=_work, args=(theirs, os.getpid()), name="envfleet-trial")
        with main_module_hidden():
            start_quietly(process)
        theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _end(self, worker: _Worker) -> None:
        worker.connection.close()
        if worker.process.is_alive():
            worker.process.kill()
        worker.process.join()
        worker.process.close()


def _packed(task: TrialTask) -> bytes:
    """The task as a process takes it that knows nothing which this program has defined or registered."""
    env_id = task.config.env_id
    if type(env_id) is str and env_id in gymnasium.registry:
        task = dataclasses.replace(task, config=dataclasses.replace(task.config, env_id=named(gymnasium.spec(env_id))))
    return dumps_by_value((task, ALGORITHMS[task.config.algo]))


def _work(connection: Connection, caller_pid: int) -> None:
    # Ctrl-C in the terminal is for the process that has the study, which then tells the others once.
    os.setpgid(0, 0)
    _core.exit_with_process(caller_pid)

    def judge(place: int, value: float) -> bool:
        connection.send(_Evaluation(place, value))
        return bool(connection.recv())

    with suppress(EOFError, BrokenPipeError):  # the other side is no more
        while True:
            task, algorithm = pickle.loads(connection.recv_bytes())
            outcome = _known(task, algorithm, judge)
            connection.send(outcome)


def _known(task: TrialTask, algorithm: Algorithm, judge: Callable[[int, float], bool]) -> TrialOutcome:
    ALGORITHMS[task.config.algo] = algorithm
    outcome = run_trial(task, judge)
    if outcome.error is None:
        return outcome
    error = portable(outcome.error)
    return dataclasses.replace(outcome, error=error if isinstance(error, Exception) else RuntimeError(str(error)))
