"""What an environment written in Python looks like in memory: its record, and its description for the pool."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from envfleet.native.own import abi
from envfleet.native.own.environment import AnySpace, Description

Fields: TypeAlias = "Sequence[tuple[str, Any] | tuple[str, Any, int | tuple[int, ...]]]"
"""Name, type and, of arrays, shape."""

ACTION = "_action"
"""The last field of a record: the action, in the type in which the environment calculates."""

_STATE_TYPES = ("float64", "int64", "bool")
_PARAMETER_TYPES = {float: "float64", int: "int64", bool: "bool"}


def check(description: Description) -> None:
    """Refuses spaces and parameters that the pool has no place for."""
    for space in (description.observation_space, description.action_space):
        problem = _problem(space)
        if problem:
            raise TypeError(f"{description.name} cannot be compiled with the space {space}: {problem}.")
    for name, value in description.parameters.items():
        if type(value) not in _PARAMETER_TYPES:
            raise TypeError(f"parameter {name} must be a float, an int or a bool, got {value!r}.")
    limit = description.max_episode_steps
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"max_episode_steps must be a positive integer or None, got {limit!r}.")


def _problem(space: AnySpace) -> str:
    if isinstance(space, Box):
        known = str(space.dtype) in abi.TYPE_NUMBERS and space.dtype != np.bool_
        return "" if known else f"numbers cannot be of type {space.dtype}"
    if not isinstance(space, Discrete | MultiDiscrete):
        return "it must be Box, Discrete or MultiDiscrete"
    if np.any(space.start) or space.dtype != np.int64:
        return "it must start at 0, in int64"
    return "it must have one dimension" if len(space.shape or ()) > 1 else ""


def record(description: Description, state: Fields) -> np.dtype[Any]:
    """The record that methods know as ``self``: parameters in eight bytes each, the state, the action."""
    parameters = description.parameters.items()
    fields: list[Any] = [(name, "f8" if type(value) is float else "i8") for name, value in parameters]
    fields += [_checked_field(description, field) for field in state]
    fields.append((ACTION, *calculated(description.action_space)))
    names = [name for name, *_ in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{description.name}: {twice[0]!r} cannot be the name of more than one field or parameter.")
    return np.dtype(fields, align=True)


def _checked_field(description: Description, field: Any) -> Any:
    name, kind, *shape = field
    dtype = np.dtype(kind)
    if dtype.name not in _STATE_TYPES:
        # Others calculate differently: float32 * 2.0 is float32 for NumPy, and float64 for numba.
        raise TypeError(f"{description.name}: the state {name!r} must be float, int or bool, not {dtype}.")
    return (name, dtype, *shape)


def calculated(action_space: AnySpace) -> tuple[str, tuple[int, ...]]:
    """Type and shape of the action as the environment sees it."""
    is_float = np.issubdtype(action_space.dtype, np.floating)
    return "f8" if is_float else "i8", tuple(action_space.shape or (1,))


def environment(description: Description, state_size: int, functions: Mapping[str, int]) -> abi.Environment:
    """The description as the pool reads it."""
    parameters = (abi.Parameter * max(1, len(description.parameters)))()
    for place, (name, value) in zip(parameters, description.parameters.items(), strict=False):
        place.name, place.type = name.encode(), abi.TYPE_NUMBERS[_PARAMETER_TYPES[type(value)]]
        place.initial = value
    return abi.Environment(
        abi_version=abi.VERSION,
        struct_size=ctypes.sizeof(abi.Environment),
        name=description.name.encode(),
        observation=_space(description.observation_space),
        action=_space(description.action_space),
        state_size=state_size,
        max_episode_steps=description.max_episode_steps or 0,
        num_parameters=len(description.parameters),
        parameters=parameters,
        reset=abi.Reset(functions["reset"]),
        step=abi.Step(functions["step"]),
        observe=abi.Observe(functions["observe"]),
        error_message=abi.ErrorMessage(functions["error_message"]),
    )


def _space(space: AnySpace) -> abi.Space:
    """Without bounds: the pool does not look at them."""
    shape = tuple(space.shape or ())
    lengths = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    number = abi.TYPE_NUMBERS[str(space.dtype)]
    if isinstance(space, Box):
        return abi.Space(kind=abi.BOX, type=number, ndim=len(shape), shape=lengths)
    assert isinstance(space, Discrete | MultiDiscrete)
    limits = [int(space.n)] if isinstance(space, Discrete) else [int(n) for n in space.nvec]
    counts = (ctypes.c_int64 * len(limits))(*limits)
    kind = abi.DISCRETE if isinstance(space, Discrete) else abi.MULTI_DISCRETE
    return abi.Space(kind=kind, type=number, ndim=len(shape), shape=lengths, counts=counts)
