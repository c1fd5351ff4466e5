"""A small process that forks others, each of which runs what it is told and ends."""

from __future__ import annotations

import array
import contextlib
import importlib
import os
import signal
import socket
import struct
import sys
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import NoReturn, final

PID = struct.Struct("q")
ENDED = struct.Struct("qd")


@final
class ForkServer:
    """A process that is forked here, imports `modules`, and then forks a child whenever it is asked to.

    Args:
        modules: What all children need, imported once. One that is not installed is left out.
        run: What a child does with the connection that came with the request. It must not return.
    """

    def __init__(self, modules: Sequence[str], run: Callable[[Connection], None]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            _serve(theirs, modules, run)
        theirs.close()

    def fork(self, channel: Connection) -> int:
        """Forks a child that gets a copy of `channel`; returns its process id."""
        handle = array.array("i", [channel.fileno()])
        self._socket.sendmsg([PID.pack(0)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handle)])
        pid: int = PID.unpack(self._socket.recv(PID.size))[0]
        return pid

    def wait(self, pid: int) -> tuple[int, float]:
        """Waits for the end of a child; returns its exit code, and the CPU seconds of it and of all that it started."""
        self._socket.send(PID.pack(pid))
        code, seconds = ENDED.unpack(self._socket.recv(ENDED.size))
        return int(code), float(seconds)

    def close(self) -> None:
        """Ends the server, but no child."""
        self._socket.close()
        os.waitpid(self._pid, 0)


def _serve(requests: socket.socket, modules: Sequence[str], run: Callable[[Connection], None]) -> NoReturn:
    """The whole life of a server. It ends with the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    while True:
        message, handles, _, _ = socket.recv_fds(requests, PID.size, 1)
        if not message:
            os._exit(0)
        (pid,) = PID.unpack(message)
        requests.send(_fork(requests, handles[0], run) if handles else _wait(pid))


def _fork(requests: socket.socket, handle: int, run: Callable[[Connection], None]) -> bytes:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        requests.close()
        run(Connection(handle))
    os.close(handle)
    return PID.pack(pid)


def _wait(pid: int) -> bytes:
    _, status, usage = os.wait4(pid, 0)
    return ENDED.pack(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)
