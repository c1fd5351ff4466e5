"""The bytes of a snapshot: whose it is, what the pool wrote, and a checksum over all of it.

They may have been kept in a file, sent through a network, or taken from another fleet. So they say what they are, and
are looked at before anything is put back: first here (is it a snapshot, of this version, whole, and of such an
environment?), then by the environment itself, field by field.
"""

from __future__ import annotations

import hashlib
import struct

VERSION = 1
"""Raised with every change to what environments keep: others are refused."""

_MAGIC = b"\x89envfleet state\r\n"
_HEAD = struct.Struct("<IIQ")  # version, bytes of the identity, bytes of the state
_DIGEST_SIZE = 16


class SnapshotError(ValueError):
    """Bytes cannot be put back; the message says why."""


def packed(identity: str, state: bytes) -> bytes:
    """A state with all that tells it from something else."""
    name = identity.encode()
    body = _MAGIC + _HEAD.pack(VERSION, len(name), len(state)) + name + state
    return body + _digest(body)


def unpacked(data: bytes, identity: str) -> bytes:
    """The state in a snapshot of an environment of this identity."""
    name, state = _parts(data)
    if name != identity.encode():
        raise SnapshotError(
            f"it was taken from {name.decode(errors='backslashreplace'):.300}, and this fleet has {identity:.300}."
        )
    return state


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """The identity and the state, of a snapshot that is whole."""
    start = len(_MAGIC) + _HEAD.size
    if len(data) < start + _DIGEST_SIZE or not data.startswith(_MAGIC):
        raise SnapshotError("it is no snapshot, or one of a version of envfleet whose snapshots had no checksum.")
    version, name_size, state_size = _HEAD.unpack_from(data, len(_MAGIC))
    if version != VERSION:
        raise SnapshotError(f"it is a snapshot of version {version}, and this is version {VERSION}: take it again.")
    if len(data) != start + name_size + state_size + _DIGEST_SIZE:
        raise SnapshotError(f"it is damaged: {len(data)} bytes are not as many as it says it has.")
    if _digest(data[:-_DIGEST_SIZE]) != data[-_DIGEST_SIZE:]:
        raise SnapshotError("it is damaged: its checksum does not fit.")
    return data[start : start + name_size], data[start + name_size : -_DIGEST_SIZE]


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest()
