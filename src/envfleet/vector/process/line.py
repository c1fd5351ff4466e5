"""The caller's end of the connection to one worker."""

from __future__ import annotations

import os
import select
import struct
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import final

from envfleet.vector.interruptions import signals_blocked

_CHUNK = 1 << 20
_SHORT, _LONG = struct.Struct("!i"), struct.Struct("!iQ")
_LONGEST_SHORT = 0x7FFFFFFF


@final
class Line:
    """Speaks as multiprocessing's Connection does, which is at the other end, with two things more.

    An interruption while a message is read loses nothing of it: the rest is read the next time. And what the worker
    says is read while it is spoken to, or each would wait for the other to listen once both have much to say.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._arrived = bytearray()
        os.set_blocking(connection.fileno(), False)

    def fileno(self) -> int:
        """So that one can wait for it."""
        return self._connection.fileno()

    def close(self) -> None:
        """Hangs up."""
        self._connection.close()

    def send(self, payload: bytes) -> None:
        """Sends a message; an OSError says that nobody is there."""
        short = len(payload) <= _LONGEST_SHORT
        header = _SHORT.pack(len(payload)) if short else _LONG.pack(-1, len(payload))
        for part in (header + payload,) if len(payload) < _CHUNK else (header, payload):
            unsent = memoryview(part)
            while unsent:
                with suppress(BlockingIOError):
                    unsent = unsent[os.write(self.fileno(), unsent[:_CHUNK]) :]
                    continue
                if self._wait(select.POLLIN | select.POLLOUT) & select.POLLIN and not self.pull():
                    raise BrokenPipeError("The other end is closed.")

    def send_descriptor(self, descriptor: int, pid: int | None) -> None:
        """Gives the process at the other end an open file of ours."""
        self._wait(select.POLLOUT)
        reduction.send_handle(self._connection, descriptor, pid)

    def has_arrived(self, timeout: float) -> bool:
        """Whether there is something to ``pull`` within so many seconds, if only the end."""
        return bool(self._wait(select.POLLIN, timeout))

    def pull(self) -> bool:
        """Takes over what has arrived, if anything; False when the other end is closed and nothing is left to read."""
        with signals_blocked():  # what was taken must be kept
            try:
                data = os.read(self.fileno(), _CHUNK)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                return False
            self._arrived += data
        return bool(data)

    def has_message(self) -> bool:
        """Whether a whole message was taken over."""
        start, end = self._extent()
        return start <= end <= len(self._arrived)

    def pop(self) -> bytes:
        """The oldest message; there must be one."""
        start, end = self._extent()
        message = bytes(memoryview(self._arrived)[start:end])
        del self._arrived[:end]
        return message

    def _extent(self) -> tuple[int, int]:
        """Where the oldest message begins and ends; it ends before it begins while that is not known."""
        if len(self._arrived) < _SHORT.size:
            return 1, 0
        (size,) = _SHORT.unpack_from(self._arrived)
        if size >= 0:
            return _SHORT.size, _SHORT.size + size
        if len(self._arrived) < _LONG.size:
            return 1, 0
        return _LONG.size, _LONG.size + int(_LONG.unpack_from(self._arrived)[1])

    def _wait(self, events: int, timeout: float | None = None) -> int:
        poll = select.poll()
        poll.register(self.fileno(), events)
        ready = poll.poll(None if timeout is None else timeout * 1000)
        return ready[0][1] if ready else 0
