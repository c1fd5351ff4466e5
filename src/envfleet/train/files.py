"""Files that are either complete or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a path to write to, which takes the place of `path` when the block ends well.

    It lies beside `path` and has its suffix. When the block raises, it is removed and `path` stays as it was.
    Missing parent folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile's: its files are readable by the owner alone, and would stay so after the renaming.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        _to_disk(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    # Some file systems put the renaming on disk before the contents: a power cut would leave an empty file.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
