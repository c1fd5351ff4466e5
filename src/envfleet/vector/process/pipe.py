"""The caller's end of the connection to one worker."""

from __future__ import annotations

import os
import select
import struct
from collections import deque
from collections.abc import Iterable
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import final

from envfleet.vector.runtime import signals_blocked

_CHUNK = 1 << 20
_SHORT, _LONG = struct.Struct("!i"), struct.Struct("!iQ")
_LONGEST_SHORT = 0x7FFFFFFF


@final
class Pipe:
    """Speaks as multiprocessing's Connection does, which is at the other end, with two things more.

    An interruption while a message is read loses nothing of it: the rest is read the next time. And nobody has to wait
    for a message to be sent: what does not go yet stays here, in order, and goes before anything that is said later.

    Attributes:
        traffic: Bytes that were sent and read so far.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._arrived = bytearray()
        self._unsent: deque[memoryview | int] = deque()
        self.traffic = 0
        os.set_blocking(connection.fileno(), False)

    def fileno(self) -> int:
        """So that one can wait for it."""
        return self._connection.fileno()

    def close(self) -> None:
        """Hangs up."""
        self._connection.close()

    # -- speaking -------------------------------------------------------------------------------------

    def say(self, payload: bytes) -> None:
        """Adds a message to what is to be sent."""
        short = len(payload) <= _LONGEST_SHORT
        header = _SHORT.pack(len(payload)) if short else _LONG.pack(-1, len(payload))
        parts = (header + payload,) if len(payload) < _CHUNK else (header, payload)
        self._unsent.extend(memoryview(part) for part in parts)

    def give(self, descriptor: int) -> None:
        """Adds an open file of ours, which must stay open until it was sent."""
        self._unsent.append(descriptor)

    @property
    def has_unsent(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._unsent)

    def push(self) -> None:
        """Sends what goes without waiting; forgets it if nobody is there, which whoever waits for answers will notice.

        To be called with signals blocked: what was sent must not be sent again.
        """
        try:
            while self._unsent:
                self._push_first()
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._unsent.clear()

    def _push_first(self) -> None:
        part = self._unsent[0]
        if isinstance(part, int):
            reduction.send_handle(self._connection, part, None)
        else:
            sent = os.write(self.fileno(), part[:_CHUNK])
            self.traffic += sent
            if sent < len(part):
                self._unsent[0] = part[sent:]
                return
        self._unsent.popleft()

    # -- listening ------------------------------------------------------------------------------------

    def has_arrived(self, timeout: float) -> bool:
        """Whether there is something to ``pull`` within so many seconds, if only the end."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(timeout * 1000))

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
            self.traffic += len(data)
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


def ready_pipes(pipes: Iterable[Pipe], timeout: float) -> list[Pipe]:
    """Those that can ``push`` what they have, or have something to ``pull``, within so many seconds."""
    poll, by_descriptor = select.poll(), {pipe.fileno(): pipe for pipe in pipes}
    for descriptor, pipe in by_descriptor.items():
        poll.register(descriptor, select.POLLIN | select.POLLOUT if pipe.has_unsent else select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(timeout * 1000)]
