"""Batches of observations: an array, or for Dict and Tuple spaces a dict or tuple of them, nested like the space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import Space, spaces

Array: TypeAlias = npt.NDArray[Any]
Observations: TypeAlias = "Array | dict[str, Observations] | tuple[Observations, ...]"
Tensors: TypeAlias = "torch.Tensor | dict[str, Tensors] | tuple[Tensors, ...]"


def parts_of(tree: Any) -> Mapping[Any, Any] | None:
    """The parts of a nested space, or of anything nested like one, by key or number; None for a leaf."""
    if isinstance(tree, (dict, spaces.Dict)):
        return tree if isinstance(tree, dict) else tree.spaces
    if isinstance(tree, (tuple, spaces.Tuple)):
        return dict(enumerate(tree))
    return None


def map_leaves(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply `function` to every array of a tree, together with the arrays at the same place in `others`."""
    if isinstance(tree, dict):
        return {key: map_leaves(function, leaf, *(other[key] for other in others)) for key, leaf in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, *parts) for parts in zip(tree, *others, strict=True))
    return function(tree, *others)


def nested_like(space: Space[Any], make: Callable[[Space[Any]], Any]) -> Any:
    """What `make` gives for every leaf of `space`, nested like it."""
    if isinstance(space, spaces.Dict):
        return {key: nested_like(part, make) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(nested_like(part, make) for part in space)
    return make(space)


def to_tensors(observations: Observations, device: torch.device) -> Tensors:
    """The same batch as tensors on `device`; on the CPU they share the arrays' memory."""
    if isinstance(observations, np.ndarray):
        return torch.from_numpy(observations).to(device)
    return cast("Tensors", map_leaves(lambda leaf: torch.from_numpy(leaf).to(device), observations))


def allocate(space: Space[Any], shape: tuple[int, ...]) -> Observations:
    """Arrays of `[*shape, *leaf shape]` for the observations of one environment's `space`."""
    arrays = nested_like(space, lambda leaf: np.zeros(shape + tuple(leaf.shape or ()), dtype=leaf.dtype))
    return cast("Observations", arrays)


def copied(observations: Observations) -> Observations:
    """A copy that later steps cannot overwrite."""
    return cast("Observations", map_leaves(np.copy, observations))


def stacked(space: Space[Any], single: Sequence[Any]) -> Observations:
    """One batch `[len(single), ...]` of single observations, in the dtype of `space`."""
    batch = allocate(space, (len(single),))
    for index, observation in enumerate(single):
        _write(batch, index, observation)
    return batch


def flattened(observations: Observations) -> Observations:
    """`[steps, num_envs, ...]` as `[steps * num_envs, ...]`."""
    return cast("Observations", map_leaves(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), observations))


def joined(*batches: Observations) -> Observations:
    """Batches one after another, along the first axis."""
    return cast("Observations", map_leaves(lambda *leaves: np.concatenate(leaves), *batches))


def write_row(batch: Observations, index: Any, observations: Observations) -> None:
    """Copy `observations` into `batch[index]`; an index may be a number, an array or a tuple of arrays."""
    _write(batch, index, observations)


def _write(batch: Any, index: Any, value: Any) -> None:
    if isinstance(batch, dict):
        for key, leaf in batch.items():
            _write(leaf, index, value[key])
    elif isinstance(batch, tuple):
        for leaf, part in zip(batch, value, strict=True):
            _write(leaf, index, part)
    else:
        batch[index] = value
