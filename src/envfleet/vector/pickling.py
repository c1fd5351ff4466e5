"""Values as bytes, to send them to another process, and as numbers, to compare them with those of another process."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, final

import cloudpickle
import numpy as np

from envfleet import _core


def dumps(value: Any) -> bytes:
    """Pickles any value, by cloudpickle where pickle does not do."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (Exception, SystemExit):  # classes and functions of the main module, lambdas
        return dumps_by_value(value)


dumps_by_value: Callable[[Any], bytes] = cloudpickle.dumps
"""Pickles any value for a process whose main module is not ours: what ours defines goes along."""


def unpicklable(value: Any, error: BaseException) -> TypeError:
    """What to say of a value that cannot be sent."""
    what = f"{_shown(value):.200} ({_shown(error)})"
    return TypeError(
        f"What the environment returned cannot be sent to the caller's process: {what}. "
        "Return plain data, or use SyncVectorEnv, which shares memory with its environments."
    )


def _shown(value: Any) -> str:
    """The value as text, however it resists."""
    try:
        return str(value) if isinstance(value, BaseException) else repr(value)
    except (Exception, SystemExit) as trouble:
        return f"a {type(value).__name__} that cannot be shown: {type(trouble).__name__}"


def portable(error: BaseException) -> BaseException:
    """The exception itself where it survives the way to the caller, else the closest thing that does."""
    for candidate in (error, _BareError(error)):
        try:
            pickle.loads(dumps(candidate))
            return candidate
        except (Exception, SystemExit):
            continue
    return RuntimeError(f"{type(error).__name__}: {_shown(error)}")


@final
class _BareError(Exception):
    """An exception that is rebuilt without its constructor, which may want other arguments than ``args``."""

    def __init__(self, error: BaseException) -> None:
        self._parts = type(error), error.args, dict(vars(error))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self._parts


def without_traceback(error: BaseException) -> BaseException:
    """A copy of an exception that refers to no frames, and so keeps nothing alive."""
    return _rebuild(type(error), error.args, dict(vars(error)))


def _rebuild(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


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
