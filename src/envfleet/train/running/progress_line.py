"""One line that says how far something is, and is gone when it is done."""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType
from typing import final

from envfleet.train.running.notebook import Display, in_notebook

_SECONDS = 0.1
_BLANK = "\r\x1b[K"
"""Back to the beginning of the line, and erase it."""


@final
class ProgressLine:
    """A line in a terminal or a notebook that every text replaces; elsewhere nothing.

    Used as a context manager; at its end the line is erased.

    Args:
        wanted: False shows nothing anywhere.
    """

    def __init__(self, wanted: bool = True) -> None:
        self._terminal = wanted and is_terminal()
        self._display = Display() if wanted and not self._terminal and in_notebook() else None
        self._next = 0.0
        self._shown = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._write("")

    def show(self, text: str, now: bool = False) -> None:
        """Replace the line, at most ten times per second unless it must be now."""
        moment = time.monotonic()
        if now or moment >= self._next:
            self._next = moment + _SECONDS
            self._shown = True
            self._write(text)

    def _write(self, text: str) -> None:
        if self._terminal:
            # A line that is broken by the terminal could not be erased.
            sys.stdout.write(_BLANK + text[: shutil.get_terminal_size().columns - 1])
            sys.stdout.flush()
        elif self._display is not None:
            self._display.show(text)


def is_terminal() -> bool:
    """Whether standard output is a terminal on which lines can be replaced."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
