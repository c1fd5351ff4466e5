"""One trainer a folder: a lock that ends with the process that holds it.

The lock is the kernel's (flock) on a file in the folder, so that it cannot outlive its holder. The file says who that
is, for the sentence in which others are refused. Forked processes inherit such locks: children made by Python let go
of theirs at once, and if others keep it, they are told from the holder by its number and the moment of its start.
Where the file system knows no locks, these two alone decide.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from envfleet.errors import RunInUseError

LOCK_FILE = ".lock"
_HELD_BY_OTHERS = (errno.EAGAIN, errno.EACCES)
_ATTEMPTS = 100

_descriptors: set[int] = set()
"""Those of the locks that this process holds."""


def _let_go_in_child() -> None:
    for descriptor in _descriptors:
        with suppress(OSError):
            os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@dataclass(frozen=True)
class _Holder:
    """Who holds a lock."""

    pid: int
    place: str
    started: str | None
    since: str

    @classmethod
    def me(cls) -> _Holder:
        return cls(os.getpid(), this_place(), start_of(os.getpid()), f"{datetime.now():%Y-%m-%d %H:%M:%S}")

    def is_gone(self) -> bool:
        """Whether it has certainly ended; nobody knows that of a process on another machine."""
        return self.place == this_place() and not is_running(self.pid, self.started)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a run's folder, which is made if need be, from other trainers until the block ends or this process does."""
    folder.mkdir(parents=True, exist_ok=True)
    owner = os.getpid()
    with _turn(folder):
        descriptor = _acquired(folder)
    _descriptors.add(descriptor)
    try:
        yield
    finally:
        if os.getpid() == owner:  # and no forked copy of it
            (folder / LOCK_FILE).unlink(missing_ok=True)
            _descriptors.discard(descriptor)
            os.close(descriptor)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One process at a time looks at a lock and takes it; two could otherwise both find its holder gone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    _descriptors.add(descriptor)
    try:
        with suppress(OSError):  # where there are no such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        _descriptors.discard(descriptor)
        os.close(descriptor)


def _acquired(folder: Path) -> int:
    path = folder / LOCK_FILE
    for _ in range(_ATTEMPTS):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if _try_lock(descriptor, folder) and _is_still(path, descriptor):
                content = json.dumps(asdict(_Holder.me())).encode()
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, content, 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise RunInUseError(f"{folder} is in use: its lock changes hands all the time. Try again.")


def _try_lock(descriptor: int, folder: Path) -> bool:
    """Take the lock; raises if somebody else holds it, returns False where it is worth another attempt."""
    holder = _read_holder(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD_BY_OTHERS and holder is not None and holder.is_gone():
            # What it forked lives on and has inherited its lock, which means nothing: out of the way with it.
            (folder / LOCK_FILE).unlink(missing_ok=True)
            return False
        if error.errno in _HELD_BY_OTHERS:
            raise RunInUseError(_sentence(folder, holder)) from None
        if holder is not None and not holder.is_gone():
            hint = f" If it is no more, remove {folder / LOCK_FILE}."
            raise RunInUseError(_sentence(folder, holder) + hint) from None
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether what was locked is the file there, and not one that its last holder has removed meanwhile."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read_holder(descriptor: int) -> _Holder | None:
    try:
        holder = _Holder(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return None
    return holder if isinstance(holder.pid, int) and holder.pid > 0 and isinstance(holder.place, str) else None


def is_in_use(folder: Path) -> bool:
    """Whether somebody trains there, as far as the lock's file tells; the lock is not touched."""
    try:
        with (folder / LOCK_FILE).open("rb") as file:
            holder = _read_holder(file.fileno())
    except OSError:
        return False
    return holder is not None and not holder.is_gone()


def _sentence(folder: Path, holder: _Holder | None) -> str:
    if holder is None:
        who, stop = "another process is training there", "stop it"
    elif holder.pid == os.getpid() and holder.place == this_place():
        who, stop = f"this process (pid {holder.pid}) has been training there since {holder.since}", "stop it"
    else:
        host = holder.place.split(" ")[0]
        who = f"process {holder.pid} on {host} has been training there since {holder.since}"
        stop = f"stop it (kill {holder.pid}; it saves first)"
    return (
        f"{folder} is in use: {who}. Wait for its end, or {stop} and resume then, or choose another folder. "
        "Nothing was changed; evaluating and plotting the run are possible meanwhile."
    )


def this_place() -> str:
    """Where process numbers mean what they mean here: the machine, and in containers the container."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return f"{socket.gethostname()} {namespace}".strip()


def start_of(pid: int) -> str | None:
    """When a process of this machine started, in the kernel's units; None where nobody knows."""
    fields = _status(pid)
    return fields[19] if fields is not None else None


def is_running(pid: int, started: str | None = None) -> bool:
    """Whether there is such a process on this machine, and it is the one that started then.

    Process numbers are used again. A process that ended and that its parent did not look after is not running.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # there is one, and it is somebody else's
        pass
    fields = _status(pid)
    if fields is None:
        return True
    return fields[0] not in ("Z", "X") and started in (None, fields[19])


def _status(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on, the state."""
    try:
        # The second is the program's name in parentheses, and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
