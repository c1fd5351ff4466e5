"""Values as numbers, by which what an environment shows can be compared with what it had shown in another process.

Equal values come to equal numbers, whatever process they lie in: nothing here depends on addresses or hash seeds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import cloudpickle
import numpy as np

from envfleet import _core

UNKNOWN = 0
"""Stands for what cannot be compared."""

_NUMBER = struct.Struct("=q")


def value_digest(value: Any) -> int:
    """A number that stands for any value; ``UNKNOWN`` for one that cannot be told from others."""
    try:
        return _core.digest_of(b"".join(_pieces(value)), 0) or 1
    except Exception:  # no pickle can carry it, or it has no end
        return UNKNOWN


@lru_cache(maxsize=1024)
def schema_digest(keys: tuple[Any, ...], types: tuple[type, ...]) -> int:
    """Stands for the keys of an info and the types of its values."""
    return value_digest((keys, tuple(kind.__qualname__ for kind in types)))


def _pieces(value: Any) -> Iterator[bytes]:
    kind = type(value)
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        yield from _array_pieces(np.asarray(value), kind)
    elif kind in (dict, list, tuple):
        yield from _head(kind, len(value))
        for item in value.items() if kind is dict else value:
            yield from _pieces(item)
    elif kind in (set, frozenset):
        digests = sorted(_core.digest_of(b"".join(_pieces(item)), 0) for item in value)
        yield from _head(kind, len(value))
        yield np.array(digests, np.uint64).tobytes()
    else:
        text = _text(value)
        yield from _head(kind, len(text))
        yield text


def _head(kind: type, size: int) -> Iterator[bytes]:
    yield kind.__qualname__.encode()
    yield _NUMBER.pack(size)


def _array_pieces(array: Any, kind: type) -> Iterator[bytes]:
    yield from _head(kind, array.ndim)
    yield f"{array.dtype.str}{array.shape}".encode()
    if array.dtype.hasobject:
        yield from _pieces(array.tolist())
    else:
        yield array.tobytes()


def _text(value: Any) -> bytes:
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    if type(value) is float:
        return struct.pack("=d", value)
    if value is None or type(value) in (bool, int, complex, bytes):
        return repr(value).encode()
    return bytes(cloudpickle.dumps(value))
