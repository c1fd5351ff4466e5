"""The worker processes of a fleet and the pipes to them: starts them, speaks to them, replaces and ends them."""

from __future__ import annotations

import multiprocessing.process
import os
import pickle
import select
import signal
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import final
from weakref import WeakSet

from envfleet.vector.engine import Report
from envfleet.vector.failures import Failure
from envfleet.vector.process.launch import Launcher
from envfleet.vector.recovery import LostWorker, ShardTask
from envfleet.vector.runtime import signals_blocked

_KILL_GRACE = 1.0
_LOOK_INTERVAL = 0.01
"""Seconds after which the caller checks whether a worker that is to end has ended, or can be told more."""

_started: WeakSet[BaseProcess] = WeakSet()


def _disown() -> None:
    """Forgets all workers, in a forked copy of the caller: its exit would terminate what it takes for its children."""
    children: set[BaseProcess] = getattr(multiprocessing.process, "_children", set())
    children -= set(_started)


os.register_at_fork(after_in_child=_disown)


@final
class Workers:
    """The worker processes of a fleet, one per task.

    Attributes:
        all_sent: Whether everything that workers were told is on its way to them.
        processes: The processes, in the order of the tasks.
    """

    def __init__(self, context: str | None, tasks: Sequence[ShardTask], daemon: bool) -> None:
        self.all_sent = True
        self._launcher = Launcher(context, daemon, tasks)
        self._caller_pid = os.getpid()
        self.processes: list[BaseProcess] = []
        self._pipes: list[Pipe] = []
        try:
            for worker, task in enumerate(tasks):
                self._add(worker, task)
        except BaseException:
            self.kill()
            raise

    def __len__(self) -> int:
        return len(self.processes)

    def _add(self, worker: int, task: ShardTask) -> None:
        with signals_blocked():  # or an interruption would leave a process that nobody knows
            process, connection = self._launcher.start(worker, task)
            _started.add(process)
            self.processes.append(process)
            self._pipes.append(Pipe(connection))

    def replace(self, worker: int, task: ShardTask) -> None:
        """Starts another worker in place of one that has ended."""
        with signals_blocked():
            process, connection = self._launcher.start(worker, task)
            _started.add(process)
            self._pipes[worker].close()
            self.processes[worker], self._pipes[worker] = process, Pipe(connection)

    def end_one(self, worker: int) -> None:
        """Kills a worker, and returns when it is gone."""
        process = self.processes[worker]
        if is_running(process):
            process.kill()
        process.join()

    @property
    def is_ours(self) -> bool:
        """Whether this process started the workers; a forked copy of it did not."""
        return os.getpid() == self._caller_pid

    # -- speaking -------------------------------------------------------------------------------------

    def tell(self, worker: int, payload: bytes, descriptor: int | None = None) -> None:
        """Tells a worker something, and gives it an open file of the caller's if there is one to give.

        What cannot be sent at once is left to ``deliver``. A worker that is gone is told nothing. To be called with
        signals blocked.
        """
        pipe = self._pipes[worker]
        pipe.say(payload)
        if descriptor is not None:
            pipe.give(descriptor)
        pipe.push()
        self.all_sent = self.all_sent and not pipe.has_unsent

    def deliver(self, workers: Iterable[int], timeout: float) -> bool:
        """Sends what these workers were told, and returns whether all of it is on its way within ``timeout`` seconds.

        Reads from all workers meanwhile: a worker that cannot send does not read either.
        """
        deadline = time.monotonic() + timeout
        wanted, open_pipes = [self._pipes[worker] for worker in workers], list(self._pipes)
        while any(pipe.has_unsent for pipe in wanted):
            ready = _ready_pipes(open_pipes, max(0.0, deadline - time.monotonic()))
            if not ready:
                return False
            for pipe in ready:
                with signals_blocked():
                    pipe.push()
                if not pipe.pull():
                    open_pipes.remove(pipe)
        self.all_sent = not any(pipe.has_unsent for pipe in self._pipes)
        return True

    def has_heard(self, worker: int, timeout: float) -> bool:
        """Returns whether there is a message for ``pop_message``; False after ``timeout`` seconds without any.

        Raises LostWorker if none will come.
        """
        pipe = self._pipes[worker]
        while not pipe.has_message():
            if pipe.has_arrived(timeout):
                if not pipe.pull():
                    raise self.lost(worker)
            elif self.is_alive(worker):
                return False
            elif not pipe.has_arrived(0):  # what it said last is read first
                raise self.lost(worker)
        return True

    def await_words(self, workers: Sequence[int], timeout: float) -> None:
        """Waits at most ``timeout`` seconds until one of these workers has something to say, or has ended."""
        ends = [self.processes[worker].sentinel for worker in workers]
        wait([*(self._pipes[worker].fileno() for worker in workers), *ends], timeout)

    def hear(self, worker: int) -> bytes | None:
        """Returns the oldest message that has arrived, or None; raises LostWorker if none will come."""
        pipe = self._pipes[worker]
        ended = not self.is_alive(worker)  # asked before reading: what it said last is read below
        is_open = True
        while is_open and not pipe.has_message() and pipe.has_arrived(0):
            is_open = pipe.pull()
        if pipe.has_message():
            return pipe.pop()
        if ended or not is_open:
            raise self.lost(worker)
        return None

    def pop_message(self, worker: int) -> bytes:
        """Returns the oldest message; there must be one."""
        return self._pipes[worker].pop()

    def traffic(self, worker: int) -> int:
        """Returns how many bytes came from a worker or went to it."""
        return self._pipes[worker].traffic

    def is_alive(self, worker: int) -> bool:
        """Returns whether the process of a worker runs."""
        return is_running(self.processes[worker])

    def where(self, worker: int) -> str:
        """Says where a worker runs, for messages."""
        return f"pid {self.processes[worker].pid}"

    def lost(self, worker: int, more: str = "") -> LostWorker:
        """Returns what to raise for a worker that has ended, or that has closed its connection and is ended here.

        ``more`` ends the sentence that says what happened to it.
        """
        process = self.processes[worker]
        _await_end(process, _KILL_GRACE)
        cause = _cause(process.exitcode)
        if is_running(process):
            self.end_one(worker)
        return LostWorker(worker, f"{cause}{more}")

    # -- ending ---------------------------------------------------------------------------------------

    def dismiss(self, workers: Iterable[int]) -> None:
        """Tells workers that wait for the block that there will be none."""
        with signals_blocked():
            for worker in workers:
                self.tell(worker, pickle.dumps(None))

    def drain_until_ended(self, deadline: float) -> list[Failure]:
        """Reads what the workers still say until they have ended, since a full pipe would keep them from ending.

        Returns what environments raised in close().
        """
        failures: list[Failure] = []
        open_pipes = dict(zip(self._pipes, self.processes, strict=True))
        while open_pipes and (left := deadline - time.monotonic()) > 0:
            ends = [process.sentinel for process in open_pipes.values()]
            # Not for long: a child that an environment has left behind may hold what would tell of the worker's end.
            wait([*(pipe.fileno() for pipe in open_pipes), *ends], min(left, _LOOK_INTERVAL))
            self.deliver(range(len(self)), 0.0)
            for pipe, process in list(open_pipes.items()):
                ended = not is_running(process)  # asked before reading: what it said last is read below
                if not _read_failures(pipe, failures) or ended:
                    del open_pipes[pipe]
        for process in self.processes:
            _await_end(process, deadline - time.monotonic())
        return failures

    def kill(self) -> None:
        """Ends all processes at once and closes the pipes."""
        with signals_blocked():
            for process in self.processes:
                if is_running(process):
                    process.kill()
            for process in self.processes:
                _await_end(process, _KILL_GRACE)
            for pipe in self._pipes:
                pipe.close()
            for process in self.processes:
                _let_go(process)
            self._launcher.end()


def is_running(process: BaseProcess) -> bool:
    """Whether a process runs. Asked whole: an interruption between the kernel's answer and its note would lose it.

    The kernel tells of an end once. Who does not keep that takes the process for running for ever.
    """
    with signals_blocked():
        return process.is_alive()


def _await_end(process: BaseProcess, timeout: float) -> None:
    """Waits at most ``timeout`` seconds; ``join`` would also wait for children that the process has left behind."""
    deadline = time.monotonic() + timeout
    while is_running(process) and (left := deadline - time.monotonic()) > 0:
        wait([process.sentinel], min(left, _LOOK_INTERVAL))


def _let_go(process: BaseProcess) -> None:
    """Closes the descriptors of a process that has ended; unlike its ``close()``, this keeps the exit code."""
    finalizer = getattr(getattr(process, "_popen", None), "finalizer", None)
    if finalizer is not None and not is_running(process):
        finalizer()


def _read_failures(pipe: Pipe, failures: list[Failure]) -> bool:
    """Adds what environments raised in close() to ``failures``; returns False when the other end is closed."""
    is_open = True
    while is_open and pipe.has_arrived(0):
        is_open = pipe.pull()
    while pipe.has_message():
        report = pickle.loads(pipe.pop())
        if isinstance(report, Report):
            failures += [failure for failure in report.failures if failure.method == "close"]
    return is_open


def _cause(exitcode: int | None) -> str:
    if exitcode is None:
        return "closed its connection"
    if exitcode < 0:
        try:
            return f"was killed by {signal.Signals(-exitcode).name}"
        except ValueError:
            return f"was killed by signal {-exitcode}"
    return f"ended with exit code {exitcode}"


_CHUNK = 1 << 20
_SHORT, _LONG = struct.Struct("!i"), struct.Struct("!iQ")
_LONGEST_SHORT = 0x7FFFFFFF


@final
class Pipe:
    """The caller's end of the connection to one worker.

    Speaks as multiprocessing's Connection does, which is at the other end, with two things more. An interruption
    while a message is read loses nothing of it: the rest is read the next time. And nobody has to wait for a message to
    be sent: what does not go yet stays here, in order, and goes before anything that is said later.

    Attributes:
        traffic: Bytes that were sent and read so far.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._arrived = bytearray()
        self._unsent: deque[memoryview | int] = deque()
        self.traffic = 0
        os.set_blocking(connection.fileno(), False)

    def fileno(self) -> int:
        """So that one can wait for it."""
        return self._connection.fileno()

    def close(self) -> None:
        """Hangs up."""
        self._connection.close()

    # -- speaking -------------------------------------------------------------------------------------

    def say(self, payload: bytes) -> None:
        """Adds a message to what is to be sent."""
        short = len(payload) <= _LONGEST_SHORT
        header = _SHORT.pack(len(payload)) if short else _LONG.pack(-1, len(payload))
        parts = (header + payload,) if len(payload) < _CHUNK else (header, payload)
        self._unsent.extend(memoryview(part) for part in parts)

    def give(self, descriptor: int) -> None:
        """Adds an open file of ours, which must stay open until it was sent."""
        self._unsent.append(descriptor)

    @property
    def has_unsent(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._unsent)

    def push(self) -> None:
        """Sends what goes without waiting; forgets it if nobody is there, which whoever waits for answers will notice.

        To be called with signals blocked: what was sent must not be sent again.
        """
        try:
            while self._unsent:
                self._push_first()
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._unsent.clear()

    def _push_first(self) -> None:
        part = self._unsent[0]
        if isinstance(part, int):
            reduction.send_handle(self._connection, part, None)
        else:
            sent = os.write(self.fileno(), part[:_CHUNK])
            self.traffic += sent
            if sent < len(part):
                self._unsent[0] = part[sent:]
                return
        self._unsent.popleft()

    # -- listening ------------------------------------------------------------------------------------

    def has_arrived(self, timeout: float) -> bool:
        """Whether there is something to ``pull`` within so many seconds, if only the end."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def pull(self) -> bool:
        """Takes over what has arrived, if anything; False when the other end is closed and nothing is left to read."""
        with signals_blocked():  # what was taken must be kept
            try:
                data = os.read(self.fileno(), _CHUNK)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                return False
            self._arrived += data
            self.traffic += len(data)
        return bool(data)

    def has_message(self) -> bool:
        """Whether a whole message was taken over."""
        start, end = self._extent()
        return start <= end <= len(self._arrived)

    def pop(self) -> bytes:
        """The oldest message; there must be one."""
        start, end = self._extent()
        message = bytes(memoryview(self._arrived)[start:end])
        del self._arrived[:end]
        return message

    def _extent(self) -> tuple[int, int]:
        """Where the oldest message begins and ends; it ends before it begins while that is not known."""
        if len(self._arrived) < _SHORT.size:
            return 1, 0
        (size,) = _SHORT.unpack_from(self._arrived)
        if size >= 0:
            return _SHORT.size, _SHORT.size + size
        if len(self._arrived) < _LONG.size:
            return 1, 0
        return _LONG.size, _LONG.size + int(_LONG.unpack_from(self._arrived)[1])


def _ready_pipes(pipes: Iterable[Pipe], timeout: float) -> list[Pipe]:
    """Those that can ``push`` what they have, or have something to ``pull``, within so many seconds."""
    poll, by_descriptor = select.poll(), {pipe.fileno(): pipe for pipe in pipes}
    for descriptor, pipe in by_descriptor.items():
        poll.register(descriptor, select.POLLIN | select.POLLOUT if pipe.has_unsent else select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(timeout * 1000)]
