"""Files that are either complete or not there."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from envfleet.train.folders.locking import is_running, this_place

_SUFFIX = ".partial"
_PARTIAL = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)-(?P<place>[0-9a-f]{8})\.[^.]+\.partial")
_NAMELESS = re.compile(r"\.tmp\w{6}")
"""What safetensors writes to at first; earlier versions of envfleet had that beside the files themselves."""

_LONGEST_NAME = 60
"""Of a file's name, as much as fits into the name of the folder it is written in."""


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yields a path to write to, which takes the place of `path` when the block ends well.

    It lies in a folder of its own beside `path`, and has its name. When the block raises, it is removed and `path`
    stays as it was. When the process is killed, the folder stays behind for `remove_partials`, with whatever the
    libraries that write have put beside the file. Missing parent folders are made. The new file has the permissions
    `mode`, by default those that the user's umask gives.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name[:_LONGEST_NAME]}.{os.getpid()}-{_place_number()}."
    workshop = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=path.parent))
    try:
        temporary = workshop / path.name
        yield temporary
        _to_disk(temporary, _mode_of_new_files(workshop) if mode is None else mode)
        temporary.replace(path)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def remove_partials(folder: Path, ours: Collection[str], *, private: bool = False) -> None:
    """Remove what killed writers have left in `folder`.

    Args:
        folder: where to look, not below it.
        ours: names of files that nobody but the caller writes now, so that whatever is left of them is garbage. Of
            other files only what a process of this machine began that is no more.
        private: whether nobody but the caller writes anything there.
    """
    for entry in folder.iterdir():
        found = _PARTIAL.fullmatch(entry.name)
        if found and (found["name"] in ours or _is_abandoned(int(found["pid"]), found["place"])):
            shutil.rmtree(entry, ignore_errors=True)
        elif _is_of_old(entry.name, ours) or (private and _NAMELESS.fullmatch(entry.name)):
            with suppress(OSError):
                entry.unlink()


def _is_abandoned(pid: int, place: str) -> bool:
    return place == _place_number() and not is_running(pid)


def _is_of_old(name: str, ours: Collection[str]) -> bool:
    """Whether an earlier version of envfleet wrote it on its way to one of `ours`: `.latest.123.safetensors`."""
    found = re.fullmatch(r"\.(.+)\.\d+(\.[a-z]+)", name)
    return found is not None and found[1] + found[2] in ours


def _place_number() -> str:
    return f"{zlib.crc32(this_place().encode()):08x}"


def _mode_of_new_files(folder: Path) -> int:
    # Seen, not computed: the umask cannot be read without changing it for all threads, and folders may have rules too.
    probe = folder / ".probe"
    descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        return stat.S_IMODE(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
        probe.unlink()


def _to_disk(path: Path, mode: int) -> None:
    # Some file systems put the renaming on disk before the contents: a power cut would leave an empty file.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # as safetensors' are: readable by the owner alone
            with suppress(OSError):  # a file system without permissions
                os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
