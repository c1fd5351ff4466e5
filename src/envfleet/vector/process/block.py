"""The block of memory that the caller and its workers share.

A memfd has no name: nothing appears in /dev/shm, its size limit does not apply, and when the last process
that maps it is gone, however it went, the memory is gone.
"""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np
import numpy.typing as npt


def create_block(size: int) -> int:
    """A file descriptor of ``size`` zeroed bytes to be mapped by ``map_block`` in every process."""
    try:
        descriptor = os.memfd_create("envfleet")
    except (AttributeError, OSError):  # a sandbox or a libc without memfd: an unlinked file does the same
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise


def map_block(descriptor: int, size: int) -> npt.NDArray[np.uint8]:
    """The block as an array; the mapping lives as long as the array and its views."""
    return np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
