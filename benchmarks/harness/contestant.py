"""An engine in a process of its own, and how it is spoken to: a JSON a line, each with a time limit."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from .installation import telling_line
from .protocol import Ready, Turn

SCRIPT = Path(__file__).parents[1] / "turns.py"
START_SECONDS = 120.0
TURN_SECONDS = 30.0
END_SECONDS = 10.0
# Whoever limits this process's threads must not decide for the contestants; and those that may not keep what they have
# compiled compile a library of thousands of files at every start.
NOT_INHERITED = ("OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE")


class ContestantError(RuntimeError):
    """An engine failed or did not answer; says why in one line."""


@final
class Contestant:
    """A process that makes its fleet as soon as it is started; `ready` waits for that."""

    def __init__(self, name: str, python: str, request: Mapping[str, Any], directory: Path) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        environment = {key: value for key, value in os.environ.items() if key not in NOT_INHERITED}
        self._process = subprocess.Popen(
            [python, str(SCRIPT), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)
        self._unread = b""

    @property
    def pid(self) -> int:
        """Of the process, which leads a group of its own."""
        return self._process.pid

    def ready(self) -> Ready:
        """Wait until the fleet is made and its episodes are mixed."""
        return Ready(**self._answer(START_SECONDS))

    def turn(self, seconds: float) -> Turn:
        """Let it step for so long."""
        try:
            self._stdin.write(json.dumps({"seconds": seconds}).encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise ContestantError(self._last_words("it ended between two turns")) from None
        return Turn(**self._answer(seconds + TURN_SECONDS))

    def hang_up(self) -> None:
        """Tell it to end, without waiting for that."""
        with suppress(BrokenPipeError):
            self._stdin.close()

    def close(self) -> None:
        """End it, and whatever it has started."""
        self.hang_up()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._stdout.close()
        self._errors.close()

    def _answer(self, most_seconds: float) -> dict[str, Any]:
        end = time.monotonic() + most_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(end - time.monotonic(), 0.0)):
                    raise ContestantError(f"no answer within {most_seconds:.0f} s")
                received = os.read(self._stdout.fileno(), 65536)
                if not received:
                    raise ContestantError(self._last_words("it ended without an answer"))
                self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self, what: str) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._errors.seek(0)
        return f"{what}: {telling_line(self._errors.read().decode(errors='replace'))}"
