"""One thread at a time in a fleet, and one call at a time: what the others are told, how a fleet in use is closed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from weakref import WeakSet

from envfleet import _core
from envfleet.errors import ClosedEnvironmentError, FleetInUseError

_LOOK_INTERVAL = 0.001
LEAST_PATIENCE = 1.0
"""Seconds that whoever is inside gets to come out when the fleet is closed, also if close() is in a hurry."""

_all: WeakSet[_core.Exclusive] = WeakSet()


def _forget_other_threads() -> None:
    """In a forked copy of this process they do not exist, so they will never come out."""
    for exclusive in list(_all):
        exclusive.forget_others()


os.register_at_fork(after_in_child=_forget_other_threads)


def exclusive_for(fleet: str) -> _core.Exclusive:
    """What lets one thread at a time into the calls of a fleet; ``fleet`` names its class."""
    exclusive = _core.Exclusive(partial(_refuse, fleet))
    _all.add(exclusive)
    return exclusive


def _refuse(fleet: str, owner: int, is_closed: bool) -> None:
    if is_closed:
        raise ClosedEnvironmentError(f"{fleet} is closed: make a new one.") from None
    call = _call_under_way(sys._getframe())
    if owner == threading.get_ident():
        raise FleetInUseError(
            f"{call}() of a fleet that is in use: this thread is inside another call of it, from which an environment, "
            "a callback or a signal handler made this one. Only close() may be called there. Nothing was done.",
            call,
        ) from None
    name = next((thread.name for thread in threading.enumerate() if thread.ident == owner), "unknown to Python")
    raise FleetInUseError(
        f"{call}() of a fleet that is in use by another thread ({name}). One thread at a time may use a fleet: wait "
        "until the other's call has returned (a lock around all calls does that), or give each thread a fleet of its "
        "own. Nothing was done.",
        call,
    ) from None


def _call_under_way(frame: FrameType | None) -> str:
    """The method that was refused: the first caller outside this module."""
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return "call" if frame is None else frame.f_code.co_name


def wait_for_others(exclusive: _core.Exclusive, most: float) -> float:
    """Waits until no other thread is inside, or for ``most`` seconds; returns how many it took."""
    start = time.monotonic()
    waited = 0.0
    while waited < most and exclusive.owner not in (0, threading.get_ident()):
        time.sleep(_LOOK_INTERVAL)
        waited = min(time.monotonic() - start, most)
    return waited


def close_when_free(exclusive: _core.Exclusive, close: Callable[[], None]) -> None:
    """Closes now, or leaves that to the call that is under way, which does it when it comes out."""
    if not exclusive.hand_over(close):
        close()
