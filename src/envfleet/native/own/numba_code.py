"""From a class over a record to functions with C's calling convention, by numba."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from gymnasium.spaces import Discrete

from envfleet.errors import UnsupportedError
from envfleet.native.own.layout import calculated

if TYPE_CHECKING:
    from envfleet.native.own.compiled import CompiledEnvironment

_METHODS = ("reset", "step", "observe")
_SENTENCE = (
    "{}() of {} raised an exception; compiled code does not say which. To see it, make the fleet with backend='sync' "
    "and the same seeds and actions."
)


@final
@dataclass(frozen=True)
class Callbacks:
    """Compiled functions, which last as long as this object.

    Attributes:
        addresses: Of reset, step, observe and error_message.
        kept: What lies behind them.
    """

    addresses: dict[str, int]
    kept: tuple[Any, ...]


def callbacks(environment: CompiledEnvironment) -> Callbacks:
    """Compiles an environment's methods, or raises an UnsupportedError that says why not."""
    name = environment.description.name
    try:
        import numba  # noqa: F401  the first to be missed
    except ModuleNotFoundError:
        raise UnsupportedError(f'{name} without numba, which compiles it: pip install "envfleet[numba]"') from None
    texts = [ctypes.create_string_buffer(_SENTENCE.format(method, name).encode()) for method in _METHODS]
    try:
        functions = {**_entries(environment), "error_message": _error_message(texts)}
    except Exception as error:  # not only numba's own: an unknown field of a record is a KeyError
        raise UnsupportedError(f"{name}, which numba cannot compile: {type(error).__name__}: {error}") from error
    return Callbacks({key: function.address for key, function in functions.items()}, (functions, texts))


def _jit(function: Callable[..., Any]) -> Any:
    """Compiled to calculate as NumPy does, and to refuse an index that is out of range."""
    import numba

    return numba.njit(function, error_model="numpy", boundscheck=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _entries(environment: CompiledEnvironment) -> dict[str, Any]:
    """What the pool calls: each returns 0, or the number of the method that raised, counted from 1."""
    from numba import carray, cfunc, types

    from envfleet.native.own.numba_random import RANDOM

    reset, step, observe = (_jit(vars(environment.source)[name]) for name in _METHODS)
    ready, act, seen = _ready(environment), _act(environment), _seen(environment)
    pointer, code = types.voidptr, types.int32

    def reset_entry(state: Any, random: Any, parameters: Any) -> int:
        try:
            reset(ready(state, parameters), random)
        except Exception:
            return 1
        return 0

    def step_entry(state: Any, random: Any, parameters: Any, action: Any, outcome: Any) -> int:
        try:
            record = ready(state, parameters)
            reward, terminated = step(record, act(record, action), random)
            carray(outcome, 1, np.float64)[0] = reward
            carray(outcome, 9, np.uint8)[8] = bool(terminated)
        except Exception:
            return 2
        return 0

    def observe_entry(state: Any, parameters: Any, observation: Any) -> int:
        try:
            observe(ready(state, parameters), seen(observation))
        except Exception:
            return 3
        return 0

    return {
        "reset": cfunc(code(pointer, RANDOM, pointer))(reset_entry),
        "step": cfunc(code(pointer, RANDOM, pointer, pointer, pointer))(step_entry),
        "observe": cfunc(code(pointer, pointer, pointer))(observe_entry),
    }


def _ready(environment: CompiledEnvironment) -> Any:
    """From the bytes of a state to the record with the parameters as they are now."""
    from numba import carray

    count, dtype = len(environment.description.parameters), environment.record

    def ready(state: Any, parameters: Any) -> Any:
        carray(state, count, np.int64)[:] = carray(parameters, count, np.int64)
        return carray(state, 1, dtype)[0]

    return _jit(ready)


def _act(environment: CompiledEnvironment) -> Any:
    """From the bytes of an action to what the environment takes: an integer, or an array in the record."""
    from numba import carray

    space = environment.description.action_space
    _, shape = calculated(space)
    dtype = np.dtype(space.dtype)

    def act(record: Any, action: Any) -> Any:
        record._action[...] = carray(action, shape, dtype)
        return record._action

    def act_discrete(record: Any, action: Any) -> Any:  # noqa: ARG001  the same arguments as the other
        return carray(action, 1, np.int64)[0]

    return _jit(act_discrete if isinstance(space, Discrete) else act)


def _seen(environment: CompiledEnvironment) -> Any:
    """From the bytes of an observation to an array."""
    from numba import carray

    space = environment.description.observation_space
    shape, dtype = tuple(space.shape or (1,)), np.dtype(space.dtype)

    def seen(observation: Any) -> Any:
        return carray(observation, shape, dtype)

    return _jit(seen)


def _error_message(texts: list[Any]) -> Any:
    """Compiled too: a thread of the pool must not wait for the interpreter."""
    from numba import cfunc, types

    addresses = tuple(ctypes.addressof(text) for text in texts)

    def error_message(code: Any) -> Any:
        return addresses[code - 1]

    return cfunc(types.uintp(types.int32))(error_message)
