"""The process around a fleet: cores, deadlines, signals, generators, threads, process starts, one user at a time."""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import pickle
import random
import signal
import sys
import threading
import time
import types
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, final
from weakref import WeakSet

import numpy as np

from envfleet import _core
from envfleet.errors import ClosedEnvironmentError, FleetInUseError


def usable_cores() -> int:
    """The cores this process may use: its affinity, and a container's CPU quota where there is one."""
    cores = _allowed_cores()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, math.ceil(int(quota) / int(period))))


def _allowed_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # another system, or a sandbox that forbids the question
        return os.cpu_count() or 1


@final
class Deadline:
    """So many seconds from now; never for None."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._at = math.inf if seconds is None else time.monotonic() + seconds

    def slice(self, longest: float) -> float:
        """Seconds to wait before workers are looked at again: ``longest``, or what is left."""
        if self._seconds is None:
            return longest
        return min(longest, max(0.0, self._at - time.monotonic()))

    def check(self, workers: list[int]) -> None:
        """Raises TimeoutError when the time is over."""
        if time.monotonic() >= self._at:
            raise multiprocessing.TimeoutError(
                f"Workers {workers} did not finish within {self._seconds:g} s. Nothing is lost: wait again to collect "
                "what they do."
            )


@final
class AwakeClock:
    """Seconds in which whoever looks at it ran, to judge others by.

    A program that was stopped (Ctrl-Z, a paused container) or had other things to do comes back to find much time
    gone, in which others may have been stopped too. So a gap far longer than the ``interval`` at which it is looked at
    counts as one interval.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last = time.monotonic()
        self._seconds = 0.0

    def now(self) -> float:
        """Seconds since it was made, as far as they count."""
        now = time.monotonic()
        gap, self._last = now - self._last, now
        self._seconds += gap if gap < _FAR_LONGER * self._interval else self._interval
        return self._seconds


_FAR_LONGER = 4.0
NEVER = Deadline(None)


def deadline_after(seconds: float | None) -> Deadline:
    """So many seconds from now, or never."""
    return NEVER if seconds is None else Deadline(seconds)


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


_fleet_numbers = count()


def fleet_seed() -> int:
    """Different for every fleet of a process; the same for a program that begins with ``np.random.seed(...)``.

    Workers seed their global generators from it: forked ones would all share the caller's state, and
    environments that draw parameters from it in their constructors would all be alike.
    """
    state = pickle.dumps(np.random.get_state(legacy=False))
    return zlib.crc32(state) * 2**20 + next(_fleet_numbers)


def seed_global_generators(seed: Sequence[int]) -> None:
    """Seeds all of them, in this process."""
    words = np.random.SeedSequence(seed).generate_state(3)
    random.seed(int(words[0]))
    np.random.seed(words[1])
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(int(words[2]))


def global_states() -> list[bytes]:
    """What all of them are now: the same again if nobody drew from any, or seeded it."""
    states: list[Any] = [random.getstate(), np.random.get_state(legacy=False)]
    if "torch" in sys.modules:
        states.append(sys.modules["torch"].get_rng_state().numpy().tobytes())
    return [pickle.dumps(state) for state in states]


def generator_state(state: int, increment: int, has_half: int, half: int) -> dict[str, Any]:
    """A state of NumPy's PCG64, as NumPy writes it. ``half`` are 32 bits left over from 64, if ``has_half`` is 1."""
    return {
        "bit_generator": "PCG64",
        "state": {"state": state, "inc": increment},
        "has_uint32": has_half,
        "uinteger": half,
    }


def generator_in(state: dict[str, Any]) -> np.random.Generator:
    """A generator in this state of NumPy's PCG64."""
    bits: Any = np.random.PCG64()
    bits.state = state
    return np.random.Generator(bits)


_WATCHDOG = "envfleet-watch"  # see cpp/engine/watchdog.h

_ENDING = 0.05
"""Seconds within which a thread that has been joined is gone from the kernel's list, too."""


def has_threads() -> bool:
    """Whether there are threads besides this one that a forked copy of this process would miss.

    A fork copies only the thread that calls it. What the others hold or were about to do is left as it was at that
    moment: locks that nobody opens, pools that wait for threads that do not exist. Libraries that care about forks end
    their threads right before one and start them again when needed, as NumPy's OpenBLAS does, which has them from the
    time it is imported. So a copy is made, which ends at once, and whoever is still there then counts.
    """
    if _count() == 1:
        return False
    with forks_unreported():
        copy = os.fork()
    if copy == 0:
        os._exit(0)
    os.waitpid(copy, 0)
    deadline = time.monotonic() + _ENDING
    while _count() > 1:
        if time.monotonic() > deadline:
            return True
        time.sleep(_ENDING / 50)
    return False


def _count() -> int:
    """The threads of this process, but for the one by which a worker ends with its caller: it holds nothing."""
    try:
        return sum(_name(task) != _WATCHDOG for task in Path("/proc/self/task").iterdir())
    except OSError:  # a sandbox without /proc
        return threading.active_count()


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:  # it has ended meanwhile, and still counts: whoever asks looks again
        return ""


@contextmanager
def forks_unreported() -> Iterator[None]:
    """Keeps Python from warning of forks, which it does since 3.12 also where all threads are those that policy.

    JAX warns of every fork once it has computed something, also of those that find out whether there are threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        yield


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


def prctl(option: int, value: int) -> bool:
    """Asks Linux for something for this process; returns whether it is granted."""
    return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)


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
    return "call" if frame is None else frame.f_code.co_name.removeprefix("_")


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
