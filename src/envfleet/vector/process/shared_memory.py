"""The block of memory that the caller and its workers share.

A memfd has no name: nothing appears in /dev/shm, its size limit does not apply, and when the last process
that maps it is gone, however it went, the memory is gone.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import tempfile

import numpy as np
import numpy.typing as npt

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def create_block(size: int) -> tuple[npt.NDArray[np.uint8], int]:
    """``size`` zeroed bytes as an array, and the file descriptor by which ``map_block`` maps them elsewhere."""
    try:
        descriptor = _open_block()
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: there can be no block. {descriptors_text()}") from error
    try:
        os.ftruncate(descriptor, size)
        return map_block(descriptor, size), descriptor
    except OSError as error:
        os.close(descriptor)
        if error.errno in OUT_OF_DESCRIPTORS:
            raise OSError(error.errno, f"{error.strerror}: there can be no block. {descriptors_text()}") from error
        raise MemoryError(
            f"The block shared with the workers would need {size / 2**20:.0f} MiB, which this machine does not give "
            f"({error.strerror}): use fewer environments or smaller observations."
        ) from error
    except BaseException:
        os.close(descriptor)
        raise


def _open_block() -> int:
    try:
        return os.memfd_create("envfleet")
    except (AttributeError, OSError):  # a sandbox or a libc without memfd: an unlinked file does the same
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def descriptors_text() -> str:
    """What a fleet needs of them, and what to do about it."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"Each worker takes about three file descriptors here and {limit} are allowed: raise the limit (ulimit -n) or "
        "ask for fewer workers with num_workers."
    )


def map_block(descriptor: int, size: int) -> npt.NDArray[np.uint8]:
    """The block as an array; the mapping lives as long as the array and its views."""
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
