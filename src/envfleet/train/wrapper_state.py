"""What vector wrappers have learnt: read, put back, frozen, and written into files beside the weights.

A wrapper whose state outlasts a reset, such as running statistics, has `state_dict()` and `load_state_dict(state)`.
Gymnasium's own normalisers have neither, but keep their statistics in a `RunningMeanStd`, which is read directly. All
other wrappers begin anew with a reset, as the environments do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium.vector import VectorWrapper
from gymnasium.wrappers.utils import RunningMeanStd
from torch import Tensor

from envfleet.wrappers._common import AnyVectorEnv

WrapperState: TypeAlias = "dict[str, Any]"
"""By wrapper, "0.NormalizeReward" for the outermost, what its `state_dict` gave."""

_MOMENTS = ("mean", "var", "count")
_ARRAY, _NUMBER, _TENSOR, _TUPLE = "array", "number", "tensor", "tuple"


def wrappers_of(envs: AnyVectorEnv) -> Iterator[Any]:
    """The wrappers around a fleet, the outermost first."""
    layer: Any = envs
    while isinstance(layer, VectorWrapper):
        yield layer
        layer = layer.env


def read_state(envs: AnyVectorEnv) -> WrapperState:
    """What the wrappers around a fleet have learnt so far; those that learn nothing are left out."""
    return {name: _state_of(wrapper) for name, wrapper in _stateful(envs)}


def load_state(envs: AnyVectorEnv, state: Mapping[str, Any]) -> None:
    """Put back what `read_state` gave; a state of other wrappers is refused before anything is changed."""
    check_wrappers(envs, state)
    for name, wrapper in _stateful(envs):
        _load(wrapper, state[name])


def check_wrappers(envs: AnyVectorEnv, state: Mapping[str, Any]) -> None:
    """Refuse a state of other wrappers than these."""
    wrappers = dict(_stateful(envs))
    if wrappers.keys() != state.keys():
        raise ValueError(
            f"The wrappers are other than those the state was saved of: expected {_listed(state)}, got "
            f"{_listed(wrappers)}. Give the function that the run was trained with: wrap=."
        )


def freeze(envs: AnyVectorEnv) -> None:
    """Let the wrappers' statistics stay as they are: nothing is learnt from episodes that are played for a score."""
    for wrapper in wrappers_of(envs):
        if hasattr(type(wrapper), "update_running_mean") or "update_running_mean" in vars(wrapper):
            wrapper.update_running_mean = False


def packed(state: Any, prefix: str) -> tuple[Any, dict[str, Tensor]]:
    """A state as what JSON holds and tensors, whose names begin with `prefix`; what neither can hold is refused."""
    tensors: dict[str, Tensor] = {}

    def put(kind: str, tensor: Tensor) -> dict[str, str]:
        name = f"{prefix}/{len(tensors)}"
        tensors[name] = tensor
        return {kind: name}

    def pack(value: Any, path: str) -> Any:
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {"dict": {key: pack(entry, f"{path}[{key!r}]") for key, entry in value.items()}}
        if isinstance(value, (list, tuple)):
            kind = _TUPLE if isinstance(value, tuple) else "list"
            return {kind: [pack(entry, f"{path}[{number}]") for number, entry in enumerate(value)]}
        if isinstance(value, Tensor):
            return put(_TENSOR, value.detach().cpu().clone())
        if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf":
            kind = _NUMBER if isinstance(value, np.generic) else _ARRAY
            return put(kind, torch.from_numpy(np.array(value)))
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(
            f"The state of wrapper {path} is {value!r:.80} of type {type(value).__name__}, which a checkpoint cannot "
            "hold. Let its state_dict() give numbers, texts, None, arrays, tensors, and dicts, lists and tuples of "
            "these."
        )

    return pack(state, ""), tensors


def unpacked(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What `packed` was given; a tensor that is missing raises a KeyError."""
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "dict":
        return {key: unpacked(entry, tensors) for key, entry in content.items()}
    if kind in ("list", _TUPLE):
        entries = [unpacked(entry, tensors) for entry in content]
        return tuple(entries) if kind == _TUPLE else entries
    if kind == _TENSOR:
        return tensors[content].clone()
    array = tensors[content].numpy().copy()
    return array[()] if kind == _NUMBER else array


def _stateful(envs: AnyVectorEnv) -> Iterator[tuple[str, Any]]:
    for number, wrapper in enumerate(wrappers_of(envs)):
        if _has_methods(wrapper) or _moments(wrapper):
            yield f"{number}.{type(wrapper).__name__}", wrapper


def _has_methods(wrapper: Any) -> bool:
    # Of the class: a wrapper may pass on what it does not have to the environments that it is around.
    return all(callable(getattr(type(wrapper), name, None)) for name in ("state_dict", "load_state_dict"))


def _moments(wrapper: Any) -> dict[str, RunningMeanStd]:
    return {name: value for name, value in vars(wrapper).items() if isinstance(value, RunningMeanStd)}


def _state_of(wrapper: Any) -> Any:
    if _has_methods(wrapper):
        return wrapper.state_dict()
    return {name: {entry: getattr(moments, entry) for entry in _MOMENTS} for name, moments in _moments(wrapper).items()}


def _load(wrapper: Any, state: Any) -> None:
    if _has_methods(wrapper):
        wrapper.load_state_dict(state)
        return
    for name, moments in _moments(wrapper).items():
        for entry in _MOMENTS:
            setattr(moments, entry, state[name][entry])


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(name.partition(".")[2] for name in names) or "none with a state"
