"""Rows of the block as bytes, and back: what travels between the caller and an actor.

Both have a block of their own, laid out alike, so the bytes of a row need no description.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import final

import numpy as np

from envfleet.vector.layout import Array
from envfleet.vector.share import ShardRows

_HEADER = struct.Struct("=I")
"""How many bytes of each info row follow."""


@final
class Freight:
    """Some arrays, one after another."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.pieces = [array.reshape(-1).view(np.uint8).data for array in arrays]
        self._edges = np.cumsum([0, *(len(piece) for piece in self.pieces)]).tolist()
        self.size: int = self._edges[-1]

    def pack(self) -> bytes:
        """What lies in them."""
        return b"".join(self.pieces)

    def unpack(self, payload: bytes, start: int = 0) -> None:
        """Writes into them what ``pack`` gave elsewhere, which begins at ``start``."""
        source = memoryview(payload)
        for piece, first, last in zip(self.pieces, self._edges, self._edges[1:], strict=False):
            piece[:] = source[start + first : start + last]


@final
class Results:
    """What environments leave in their rows, and the report that goes with it, as one message.

    Of the block it takes what the caller shows its user, and what has to outlive an actor.
    """

    def __init__(self, rows: ShardRows) -> None:
        self._infos = rows.info_rows
        self._freight = Freight(
            [
                rows.rewards,
                rows.terminated,
                rows.truncated,
                rows.restarted,
                rows.restarts,
                rows.parameters,
                rows.info_kinds,
                *rows.observation_arrays,
            ]
        )
        self._kinds = rows.info_kinds

    def pack(self, report: bytes, info_bytes: int) -> bytes:
        """The message; ``info_bytes`` is how much of an info row is in use, if any is."""
        width = info_bytes if self._kinds.any() else 0
        infos = np.ascontiguousarray(self._infos[:, :width]).reshape(-1)
        return b"".join((_HEADER.pack(width), *self._freight.pieces, infos.data, report))

    def unpack(self, message: bytes) -> bytes:
        """Writes into the rows what lay in the others when the message was packed, and returns the report."""
        (width,) = _HEADER.unpack_from(message)
        self._freight.unpack(message, _HEADER.size)
        start = _HEADER.size + self._freight.size
        end = start + len(self._infos) * width
        if width:
            self._infos[:, :width] = np.frombuffer(message, np.uint8, end - start, start).reshape(-1, width)
        return message[end:]
