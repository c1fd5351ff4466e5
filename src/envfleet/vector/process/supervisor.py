"""The caller's side of the workers: starts them, passes turns, notices deaths, ends them."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import NoReturn, final

import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.errors import WorkerDiedError
from envfleet.vector.failures import Failure, as_error
from envfleet.vector.orders import Order, Report, StepOrder
from envfleet.vector.process import protocol
from envfleet.vector.process.launch import start_workers, usable_cores
from envfleet.vector.process.parcels import dumps_by_value
from envfleet.vector.process.patience import ASLEEP, CallerPatience, worker_patience
from envfleet.vector.process.worker import Berth
from envfleet.vector.shard import EnvFn
from envfleet.vector.spaces import EnvFace, FleetSpaces

_KILL_GRACE = 1.0


@final
class Supervisor:
    """Some worker processes, one share of environments ``(first index, functions)`` each.

    Holds no reference to the vector environment, so that it can outlive it in a finalizer.
    """

    def __init__(self, context: str | None, shares: Sequence[tuple[int, Sequence[EnvFn]]], daemon: bool) -> None:
        self._bounds = [(first, first + len(env_fns)) for first, env_fns in shares]
        self._caller_pid = os.getpid()
        self._mailroom: _core.Mailroom | None = None
        self._collected_turns = 0
        self._inbox: tuple[int, list[bytes | None]] = (0, [])
        self._patience = CallerPatience(len(shares), usable_cores())
        self.processes, self._connections = start_workers(context, shares, daemon)

    # -- starting -------------------------------------------------------------------------------------

    def faces(self) -> list[EnvFace]:
        """Waits until all environments are made and returns what they show, in order."""
        answers = [pickle.loads(self._receive(worker)) for worker in range(len(self.processes))]
        for worker, answer in enumerate(answers):
            if isinstance(answer, Failure):
                raise as_error(answer, worker)
        return [face for faces in answers for face in faces]

    def hand_out(self, spaces: FleetSpaces, descriptor: int, control: npt.NDArray[np.uint8]) -> None:
        """Gives every worker the block."""
        self._mailroom = _core.Mailroom(control, len(self.processes), create=True)
        patience = worker_patience(len(self.processes), usable_cores())
        berth = dumps_by_value(Berth(spaces, len(self.processes), patience))
        for worker, (process, connection) in enumerate(zip(self.processes, self._connections, strict=True)):
            try:
                connection.send_bytes(berth)
                reduction.send_handle(connection, descriptor, process.pid)
            except (BrokenPipeError, ConnectionResetError):
                self._raise_died(worker)

    # -- turns ----------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a turn was begun and not yet collected."""
        return self._mailroom is not None and self._mailroom.turns() != self._collected_turns

    def begin(self, order: Order) -> None:
        """Sets all workers to work."""
        assert self._mailroom is not None
        if not self.processes:
            return
        if isinstance(order, StepOrder) and not order.loose_actions:
            self._mailroom.post(0, len(self.processes), protocol.STEP)
            return
        # Pickled before anything is posted: arguments that cannot be pickled must change nothing.
        payloads = [dumps_by_value(order.part(first, last)) for first, last in self._bounds]
        with _signals_blocked():  # a worker that was told of an order must get it
            # Posted before it is sent: a long message needs a reader at the other end.
            self._mailroom.post(0, len(self.processes), protocol.ORDER)
            self._send(payloads)

    def _send(self, payloads: Sequence[bytes]) -> None:
        for worker, payload in enumerate(payloads):
            try:
                self._connections[worker].send_bytes(payload)
            except (BrokenPipeError, ConnectionResetError):
                self._raise_died(worker)

    def finish(self, timeout: float | None) -> list[Report | None]:
        """Waits for all workers; a TimeoutError loses nothing, their work can still be collected."""
        assert self._mailroom is not None
        self._wait(timeout)
        turn = self._mailroom.turns()
        if self._inbox[0] != turn:
            self._inbox = turn, []
        payloads = self._inbox[1]
        while len(payloads) < len(self.processes):  # goes on where an interruption stopped it
            speaks = self._mailroom.status(len(payloads)) == protocol.REPORT_FOLLOWS
            payloads.append(self._receive(len(payloads)) if speaks else None)
        self._collected_turns = turn
        # Unpickled only when all have been read: one that cannot be must not leave others in the pipe.
        return [self._report(worker, payload) for worker, payload in enumerate(payloads)]

    def _report(self, worker: int, payload: bytes | None) -> Report | None:
        if payload is None:
            return None
        try:
            report: Report = pickle.loads(payload)
        except Exception as error:
            return Report(failures=[Failure.of(error, self._bounds[worker][0], "call")])
        return report

    def discard(self) -> None:
        """Waits for workers that are still at work and forgets what they have to say."""
        if self.is_busy:
            self.finish(None)

    def _wait(self, timeout: float | None) -> None:
        assert self._mailroom is not None
        start = time.monotonic()
        left = math.inf if timeout is None else timeout
        patience = self._patience.now()
        while not self._mailroom.wait_done(min(protocol.WATCH_INTERVAL, left), patience.pause, patience.yield_):
            self._raise_if_dead()
            patience = ASLEEP
            left = math.inf if timeout is None else start + timeout - time.monotonic()
            if left <= 0:
                busy = [w for w in range(len(self.processes)) if not self._mailroom.is_finished(w)]
                raise multiprocessing.TimeoutError(
                    f"Workers {busy} did not finish within {timeout} s. Nothing is lost: wait again to collect it."
                )
        self._patience.learn(time.monotonic() - start)

    def _receive(self, worker: int) -> bytes:
        connection = self._connections[worker]
        try:
            while not connection.poll(protocol.WATCH_INTERVAL):
                if not self.processes[worker].is_alive() and not connection.poll(0):
                    self._raise_died(worker)
            return connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            self._raise_died(worker)

    def worker_of(self, env_index: int) -> int | None:
        """The worker an environment runs in, None when it is in none of them."""
        for worker, (first, last) in enumerate(self._bounds):
            if first <= env_index < last:
                return worker
        return None

    def _raise_if_dead(self) -> None:
        for worker, process in enumerate(self.processes):
            if not process.is_alive() and not (self._mailroom and self.is_busy and self._mailroom.is_finished(worker)):
                self._raise_died(worker)

    def _raise_died(self, worker: int) -> NoReturn:
        process = self.processes[worker]
        process.join(_KILL_GRACE)
        first, last = self._bounds[worker]
        raise WorkerDiedError(
            f"Worker {worker} (pid {process.pid}, environments {first}..{last - 1}) {_cause(process.exitcode)}. "
            "The fleet cannot go on: close() it and make a new one. If an environment crashes the process, "
            "find it with SyncVectorEnv.",
            worker=worker,
            env_indices=range(first, last),
        )

    # -- ending ---------------------------------------------------------------------------------------

    def shut_down(self, timeout: float, terminate: bool) -> list[Failure]:
        """Ends all workers within about ``timeout`` seconds; returns what environments raised in close()."""
        if os.getpid() != self._caller_pid:  # a forked copy of the caller: the workers are not its own
            return []
        failures: list[Failure] = []
        try:
            if not terminate:
                deadline = time.monotonic() + timeout
                self._ask_to_close(deadline)
                failures = self._drain_until_ended(deadline)
        finally:  # a Ctrl-C while they are asked: then they are not asked any longer
            self._kill()
        return failures

    def _kill(self) -> None:
        with _signals_blocked():
            for process in self.processes:
                if process.is_alive():
                    process.kill()
            for process in self.processes:
                process.join(_KILL_GRACE)
            for connection in self._connections:
                connection.close()

    def _ask_to_close(self, deadline: float) -> None:
        mailroom = self._mailroom
        if mailroom is None:  # still starting: there will be no block for them
            for connection in self._connections:
                with suppress(OSError):
                    connection.send_bytes(dumps_by_value(None))
            return
        while any(p.is_alive() and not mailroom.is_finished(w) for w, p in enumerate(self.processes)):
            if time.monotonic() > deadline:
                break
            mailroom.wait_done(0.01, 0.0, 0.0)
        for worker, process in enumerate(self.processes):
            if process.is_alive() and mailroom.is_finished(worker):
                mailroom.post(worker, worker + 1, protocol.CLOSE)

    def _drain_until_ended(self, deadline: float) -> list[Failure]:
        """Reads whatever the workers still have to say, or a full pipe would keep them from ending."""
        failures: list[Failure] = []
        open_lines = dict(zip(self._connections, self.processes, strict=True))
        while open_lines and (left := deadline - time.monotonic()) > 0:
            wait([*open_lines, *(process.sentinel for process in open_lines.values())], left)
            for connection, process in list(open_lines.items()):
                ended = not process.is_alive()  # asked before reading: what it said last is read below
                if not _read_failures(connection, failures) or ended:
                    del open_lines[connection]
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        return failures


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _read_failures(connection: Connection, failures: list[Failure]) -> bool:
    """Takes note of what environments raised in close(); False when the other end is closed."""
    try:
        while connection.poll(0):
            report = pickle.loads(connection.recv_bytes())
            if isinstance(report, Report):
                failures += [failure for failure in report.failures if failure.method == "close"]
    except (EOFError, OSError):
        return False
    return True


def _cause(exitcode: int | None) -> str:
    if exitcode is None:
        return "closed its connection"
    if exitcode < 0:
        try:
            return f"was killed by {signal.Signals(-exitcode).name}"
        except ValueError:
            return f"was killed by signal {-exitcode}"
    return f"ended with exit code {exitcode}"
