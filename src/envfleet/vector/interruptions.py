"""Interruptions kept out of what must be done whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_MAY_INTERRUPT = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
]


@contextmanager
def signals_blocked() -> Iterator[None]:
    """What is done here is done whole: a Ctrl-C comes before or after.

    Not by a signal mask: the kernel then hands the signal to another thread (torch and BLAS have many), and Python
    runs its handler in the main thread all the same; besides, processes started meanwhile would inherit the mask.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers never run here
        return
    came: list[int] = []
    handlers = {number: handler for number in _MAY_INTERRUPT if callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        _restore(handlers)
        for number in came:
            signal.raise_signal(number)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    """Puts all handlers back, also if one that is back already interrupts that."""
    interruption = None
    while True:
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            break
        except BaseException as error:
            interruption = error
    if interruption is not None:
        raise interruption
