"""What every start of a process needs, by whichever start method."""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from typing import Any

_one_at_a_time = threading.Lock()


def start_quietly(process: BaseProcess) -> None:
    """Starts a process whatever the terminal sends; one for which there are too few descriptors takes none."""
    with _a_pipe(), _a_pipe():
        pass  # multiprocessing takes two, and would forget the first if there were no second
    with ctrl_c_kept_from_children():
        process.start()


def let_go_of_fork_server() -> None:
    """In a worker that a fork server started: it does not keep the fork server alive.

    Which ends when the last process does that holds its pipe, and with its end wakes workers that are stopped, see
    cpp/engine/watchdog.h: no stopped worker may hold it. Workers never start processes by this fork server.
    """
    server: Any = getattr(forkserver, "_forkserver", None)
    if forkserver.get_inherited_fds() is not None and server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


@contextmanager
def _a_pipe() -> Iterator[None]:
    ends = os.pipe()
    try:
        yield
    finally:
        for end in ends:
            os.close(end)


@contextmanager
def ctrl_c_kept_from_children() -> Iterator[None]:
    """A terminal sends Ctrl-C to workers too: those that do not ignore it yet would each print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def main_module_hidden() -> Iterator[None]:
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
