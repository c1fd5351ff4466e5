"""Environments from shared libraries, written against ``envfleet_env.h``."""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path
from typing import Any, final

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from envfleet import _native
from envfleet.native.own import abi
from envfleet.native.own.environment import AnySpace, Description, Number, OwnEnv, OwnEnvironment, Parameters

_MOST_BYTES = 2**30
_MOST_PARAMETERS = 1000
_MOST_DIMENSIONS = 32
_PARAMETER_TYPES = {"float64": float, "int64": int, "bool": bool}


class LibraryError(ImportError):
    """A file cannot be used as an environment; the message says why."""


def include_dir() -> str:
    """The folder of ``envfleet_env.h``, for the compiler's ``-I``."""
    return str(Path(_native.__file__).parent / "include")


def load(path: str | os.PathLike[str]) -> LibraryEnvironment:
    """Loads an environment from a shared library, for ``make_vec``.

    Args:
        path: The library. What it must contain is written in ``envfleet_env.h``, see :func:`include_dir`.

    Raises:
        LibraryError: it is no library, was built for another version, or describes something impossible.
    """
    return LibraryEnvironment(Path(path))


@final
class LibraryEnvironment(OwnEnvironment):
    """An environment from a shared library.

    Args:
        path: The library's.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._environment = _opened(path)
        try:
            super().__init__(_description(self._environment))
        except ValueError as error:
            raise LibraryError(f"{path} describes an environment that cannot be: {error}") from None

    @property
    def address(self) -> int:
        """Where its ``envfleet_environment`` lies."""
        return ctypes.addressof(self._environment)

    def _make(self, parameters: Parameters, render_mode: str | None) -> OwnEnv:
        return _LibraryEnv(self, self._environment, parameters, render_mode)

    def __reduce__(self) -> tuple[Any, ...]:
        return load, (self._path,)


@final
class _LibraryEnv(OwnEnv):
    """One environment of a library, called through ctypes."""

    def __init__(
        self, owner: LibraryEnvironment, environment: abi.Environment, parameters: Parameters, render_mode: str | None
    ) -> None:
        super().__init__(owner.description, parameters, render_mode)
        self._environment = environment
        self._state = np.zeros(-(-environment.state_size // 16) * 2, np.int64)  # NumPy aligns to 16

    def _begin(self) -> None:
        self._check(self._environment.reset(self._state.ctypes.data, self._random(), self._slots().ctypes.data))

    def _advance(self, action: Any) -> tuple[float, bool, bool]:
        outcome = abi.Outcome()
        given = np.array(action, self.action_space.dtype, order="C")
        if not self.action_space.contains(given if given.shape else given[()]):
            raise ValueError(f"expected an action of {self.action_space}, got {action!r}.")
        self._check(
            self._environment.step(
                self._state.ctypes.data,
                self._random(),
                self._slots().ctypes.data,
                given.ctypes.data,
                ctypes.addressof(outcome),
            )
        )
        return outcome.reward, bool(outcome.terminated), bool(outcome.truncated)

    def _write(self, observation: Any) -> None:
        self._check(
            self._environment.observe(self._state.ctypes.data, self._slots().ctypes.data, observation.ctypes.data)
        )

    def _slots(self) -> Any:
        """The parameters in eight bytes each."""
        slots = np.zeros(max(1, len(self.description.parameters)), np.int64)
        for place, value in enumerate(self._parameter_values()):
            if isinstance(value, float):
                slots.view(np.float64)[place] = value
            else:
                slots[place] = value
        return slots

    def _random(self) -> int:
        bits: Any = self.np_random.bit_generator
        self._source = abi.Random.of(bits.ctypes.bit_generator.value)
        return ctypes.addressof(self._source)

    def _check(self, code: int) -> None:
        if code:
            text = self._environment.error_message(code) if self._environment.error_message else None
            raise RuntimeError(_native.error_text(text, code))


def _opened(path: Path) -> abi.Environment:
    if not path.is_file():
        raise LibraryError(f"There is no library {path}.")
    try:
        library = ctypes.CDLL(str(path.resolve()))
    except OSError as error:
        raise LibraryError(f"{path} is no shared library that can be loaded here: {error}") from None
    try:
        get = getattr(library, abi.SYMBOL)
    except AttributeError:
        raise LibraryError(
            f"{path} does not export {abi.SYMBOL}(), which returns the environment: see envfleet_env.h in "
            f"{include_dir()}."
        ) from None
    get.restype = ctypes.POINTER(abi.Environment)
    pointer = get()
    if not pointer:
        raise LibraryError(f"{abi.SYMBOL}() of {path} returned NULL instead of an environment.")
    environment: abi.Environment = pointer.contents
    if environment.abi_version != abi.VERSION or environment.struct_size != ctypes.sizeof(abi.Environment):
        raise LibraryError(
            f"{path} was built for version {environment.abi_version} of envfleet_env.h (with a struct of "
            f"{environment.struct_size} bytes), this is version {abi.VERSION} ({ctypes.sizeof(abi.Environment)} "
            f"bytes): build it again with the header in {include_dir()}."
        )
    return environment


def _description(environment: abi.Environment) -> Description:
    missing = [name for name in ("reset", "step", "observe") if not getattr(environment, name)]
    if missing:
        raise ValueError(f"it has no function {missing[0]}().")
    if environment.state_size > _MOST_BYTES:
        raise ValueError(f"its state is said to have {environment.state_size} bytes, more than a gigabyte.")
    if environment.max_episode_steps < 0:
        raise ValueError(f"max_episode_steps must be positive, or 0 for no limit, not {environment.max_episode_steps}.")
    return Description(
        _text(environment.name, "its name"),
        _space(environment.observation, "observation"),
        _space(environment.action, "action"),
        _parameters(environment),
        environment.max_episode_steps or None,
    )


def _parameters(environment: abi.Environment) -> dict[str, Number]:
    count = environment.num_parameters
    if count > _MOST_PARAMETERS or (count and not environment.parameters):
        raise ValueError(f"it is said to have {count} parameters, which are not there.")
    parameters: dict[str, Number] = {}
    for each in environment.parameters[:count] if count else ():
        name = _text(each.name, "a parameter's name")
        kind = _PARAMETER_TYPES.get(abi.TYPES.get(each.type, ""))
        if kind is None or name in parameters:
            raise ValueError(f"parameter {name} is declared twice, or neither FLOAT64 nor INT64 nor BOOL.")
        parameters[name] = kind(each.initial)
    return parameters


def _text(raw: bytes | None, what: str) -> str:
    try:
        return (raw or b"").decode() or _refuse(f"{what} is missing.")
    except UnicodeDecodeError:
        return _refuse(f"{what} is not UTF-8.")


def _refuse(reason: str) -> str:
    raise ValueError(reason)


def _space(space: abi.Space, role: str) -> AnySpace:
    if space.kind == abi.DISCRETE:
        return Discrete(_counts(space, 1, role)[0])
    if space.kind not in (abi.BOX, abi.MULTI_DISCRETE):
        raise ValueError(f"the kind of the {role} space is {space.kind}, which is none.")
    shape = _shape(space, role)
    if space.kind == abi.BOX:
        return _box(space, shape, role)
    if len(shape) != 1:
        raise ValueError(f"the {role} space is MULTI_DISCRETE of {len(shape)} dimensions instead of one.")
    return MultiDiscrete(_counts(space, shape[0], role))


def _shape(space: abi.Space, role: str) -> tuple[int, ...]:
    if space.ndim > _MOST_DIMENSIONS or (space.ndim and not space.shape):
        raise ValueError(f"the {role} space is said to have {space.ndim} dimensions, which are not there.")
    shape = tuple(space.shape[: space.ndim]) if space.ndim else ()
    if any(length < 1 for length in shape) or math.prod(shape) * 8 > _MOST_BYTES:
        raise ValueError(f"the {role} space has the impossible shape {shape}.")
    return shape


def _counts(space: abi.Space, number: int, role: str) -> list[int]:
    counts = space.counts[:number] if space.counts else []
    if not counts or min(counts) < 1:
        raise ValueError(f"the {role} space needs positive counts, got {counts or 'none'}.")
    return counts


def _box(space: abi.Space, shape: tuple[int, ...], role: str) -> Box:
    dtype = abi.TYPES.get(space.type, "bool")
    if dtype == "bool":
        raise ValueError(f"numbers of the {role} space cannot be of type {space.type}.")
    size = math.prod(shape)
    low, high = (
        np.reshape(each[:size], shape) if each else np.full(shape, same)
        for each, same in ((space.lows, space.low), (space.highs, space.high))
    )
    if not (low <= high).all() or (not space.lows and space.low == space.high == 0):
        raise ValueError(f"the {role} space needs bounds, the lower ones first; INFINITY stands for none.")
    if np.dtype(dtype).kind != "f" and not np.isfinite([low, high]).all():
        raise ValueError(f"the {role} space holds integers and needs finite bounds.")
    return Box(low.astype(dtype), high.astype(dtype), shape, np.dtype(dtype).type)
