"""Kernels of notebooks that are forked from a process which has imported what most notebooks import."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn, final

from fork_server import ForkServer
from scripts import warn_as_usual

IMPORTED = ("ipykernel.kernelapp", "envfleet.train.running.run")
MODULE = "ipykernel_launcher"


@final
class ForkedKernels:
    """Takes the place of the function by which jupyter_client starts a kernel."""

    def __init__(self) -> None:
        self._server = ForkServer(IMPORTED, _be_a_kernel)

    def launch(self, command: Sequence[str], *, env: Mapping[str, str], cwd: str, **_: Any) -> Kernel:
        """Forks a kernel.

        Args:
            command: How Python would be started: its arguments are those of the kernel.
            env: The environment variables.
            cwd: The folder.
        """
        arguments = command[command.index(MODULE) + 1 :]
        ours, theirs = Pipe()
        with ours:
            pid = self._server.fork(theirs)
            theirs.close()
            ours.send((arguments, dict(env), cwd))
            ours.recv()  # or jupyter_client would take our group of processes for the kernel's, and end it
        return Kernel(self._server, pid)

    def close(self) -> None:
        """Ends what forks them."""
        self._server.close()


@final
class Kernel:
    """As much of `subprocess.Popen` as jupyter_client uses."""

    stdin = stdout = stderr = None

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server, self._end = server, os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if self.returncode is None and select.select([self._end], [], [], 0)[0]:
            self.returncode, _ = self._server.wait(self.pid)
            os.close(self._end)
        return self.returncode

    def wait(self) -> int | None:
        """The exit code, once it has ended."""
        if self.returncode is None:
            select.select([self._end], [], [])
        return self.poll()

    def send_signal(self, kind: int) -> None:
        """Sends it a signal."""
        os.kill(self.pid, kind)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)


def _be_a_kernel(channel: Connection) -> NoReturn:
    """The whole life of a kernel."""
    arguments, environment, folder = channel.recv()
    os.setsid()
    channel.send(None)
    channel.close()
    code = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        warn_as_usual()
        from ipykernel.kernelapp import launch_new_instance

        # What a kernel asks of matplotlib by an environment variable, which has been read if that is imported.
        sys.argv = [MODULE, *arguments, "--matplotlib=inline"]
        launch_new_instance()
        code = 0
    finally:
        os._exit(code)
