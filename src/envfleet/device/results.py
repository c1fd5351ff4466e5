"""What a turn on a device gave, as the caller asked for it: NumPy arrays, JAX arrays or tensors of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.spaces import Dict, Tuple

from envfleet._optional import require
from envfleet.device.kernels import Shown, Tree
from envfleet.vector.engine import StepResult
from envfleet.vector.infos import Info
from envfleet.vector.layout import LayoutError

Arrays: TypeAlias = Literal["numpy", "jax", "torch"]
KINDS: tuple[Arrays, ...] = ("numpy", "jax", "torch")


def fitted(space: Space[Any], value: Any, path: str = "observation") -> Tree:
    """A traced observation as its space says: cast to the dtype, refused if the shape or the kind does not fit."""
    if isinstance(space, Dict):
        if not isinstance(value, Mapping) or value.keys() != space.spaces.keys():
            raise LayoutError(f"{path}: expected a dict with the keys {', '.join(space)}, got {_told(value)}")
        return {key: fitted(part, value[key], f"{path}[{key!r}]") for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            raise LayoutError(f"{path}: expected a tuple of {len(space.spaces)}, got {_told(value)}")
        return tuple(
            fitted(part, one, f"{path}[{i}]") for i, (part, one) in enumerate(zip(space.spaces, value, strict=True))
        )
    if space.dtype is None or space.shape is None:
        raise LayoutError(f"{path}: the space {space} has no fixed shape, so it cannot lie on a device")
    array = jnp.asarray(value)
    if array.shape != space.shape:
        raise LayoutError(f"{path}: expected the shape {space.shape} of {space}, got {array.shape}")
    if not np.can_cast(array.dtype, space.dtype, "same_kind"):
        raise LayoutError(f"{path}: expected {space.dtype}, as {space} says, got {array.dtype}")
    return array.astype(jax.dtypes.canonicalize_dtype(space.dtype))


def _told(value: Any) -> str:
    return f"{type(value).__name__}" + (f" with {', '.join(map(str, value))}" if isinstance(value, Mapping) else "")


def on_host(space: Space[Any], tree: Tree, into: Tree = None) -> Any:
    """Batched observations as NumPy arrays of the space's dtypes: new ones, or those of an earlier call."""
    if isinstance(space, Dict):
        return {key: on_host(part, tree[key], into and into[key]) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        parts = zip(space.spaces, tree, into or [None] * len(space.spaces), strict=True)
        return tuple(on_host(part, one, earlier) for part, one, earlier in parts)
    if into is None:
        return np.asarray(tree).astype(space.dtype)
    np.copyto(into, np.asarray(tree))
    return into


class Results:
    """Shows turns in one kind of arrays.

    Args:
        space: That of a single observation.
        num_envs: How many environments.
        kind: Which arrays the caller gets.
    """

    def __init__(self, space: Space[Any], num_envs: int, kind: Arrays) -> None:
        self._space, self._num_envs, self.kind = space, num_envs, kind
        self._live: Tree = None
        """Not copied observations are always these arrays. The device's own can only be read."""
        if kind == "torch":
            self._from_dlpack = require("torch", "train").from_dlpack

    def handed(self, tree: Tree) -> Tree:
        """Arrays that stay on the device."""
        return tree if self.kind == "jax" else jax.tree.map(self._from_dlpack, tree)

    def observations(self, tree: Tree, copy: bool) -> Any:
        """The observations of all environments."""
        if self.kind != "numpy":
            return self.handed(tree)
        if copy:
            return on_host(self._space, tree)
        self._live = on_host(self._space, tree, self._live)
        return self._live

    def of_reset(self, observations: Tree, info: Tree, mask: npt.NDArray[np.bool_], copy: bool) -> tuple[Any, Info]:
        """What ``reset`` returns."""
        infos = _columns(jax.tree.map(np.asarray, info), mask) if self.kind == "numpy" else self.handed(info)
        return self.observations(observations, copy), infos

    def of_step(self, shown: Shown, copy: bool) -> StepResult:
        """What ``step`` returns."""
        if self.kind != "numpy":
            return self._left_on_device(shown)
        terminated, truncated = np.array(shown.terminated), np.array(shown.truncated)
        rewards = np.asarray(shown.rewards).astype(np.float64)
        observations = self.observations(shown.observations, copy)
        return observations, rewards, terminated, truncated, self._host_infos(shown)

    def _left_on_device(self, shown: Shown) -> StepResult:
        """Every key at every step, with the mask that says where it holds: to leave one out, one would have to look."""
        infos: dict[str, Any] = {**shown.step_info}
        if shown.reset_info or shown.last is not None:
            infos |= {"reset_info": shown.reset_info, "_reset_info": shown.began}
        if shown.last is not None:
            infos |= {"final_obs": shown.last, "_final_obs": shown.began}
        return self.handed((shown.observations, shown.rewards, shown.terminated, shown.truncated, infos))  # type: ignore[no-any-return]

    def _host_infos(self, shown: Shown) -> Info:
        if not shown.step_info and not shown.reset_info and shown.last is None:
            return {}
        began = np.asarray(shown.began)
        any_began = bool(began.any())
        steps = jax.tree.map(np.asarray, shown.step_info)
        infos = _columns(steps, ~began) if not began.all() else {}
        if any_began and shown.reset_info:
            infos = _merged(infos, _columns(jax.tree.map(np.asarray, shown.reset_info), began))
        if any_began and shown.last is not None:
            infos["final_obs"] = self._rows(on_host(self._space, shown.last), began)
            infos["_final_obs"] = began.copy()
            infos["final_info"], infos["_final_info"] = _columns(steps, began), began.copy()
        return infos

    def _rows(self, batched: Any, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.object_]:
        """The rows of a mask as objects, None elsewhere."""
        rows = np.empty(self._num_envs, np.object_)
        ended = np.flatnonzero(mask)
        picked = jax.tree.map(lambda column: column[ended], batched)
        whole = isinstance(picked, np.ndarray)
        for place, row in enumerate(ended.tolist()):
            rows[row] = picked[place] if whole else jax.tree.map(lambda column, at=place: column[at], picked)
        return rows


def _columns(info: Mapping[str, Any], mask: npt.NDArray[np.bool_]) -> Info:
    """Infos as Gymnasium lays them out: each key with the mask of the environments that have it, zeros elsewhere."""
    columns: Info = {}
    for key, value in info.items():
        columns[key] = _columns(value, mask) if isinstance(value, Mapping) else _zeroed(value, mask)
        columns[f"_{key}"] = mask.copy()
    return columns


def _zeroed(column: npt.NDArray[Any], mask: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    if mask.all():
        return np.array(column)
    rows = mask.reshape(mask.shape + (1,) * (column.ndim - 1))
    zeroed: npt.NDArray[Any] = np.where(rows, column, np.zeros((), column.dtype))
    return zeroed


def _merged(one: Info, other: Info) -> Info:
    """Infos of two disjoint masks: where both have a key, its rows are joined."""
    merged = {**one, **other}
    for key in one.keys() & other.keys():
        if key.startswith("_") and key[1:] in one:
            merged[key] = one[key] | other[key]
        elif isinstance(one[key], dict):
            merged[key] = _merged(one[key], other[key])
        else:
            rows = other[f"_{key}"]
            merged[key] = np.where(rows.reshape(rows.shape + (1,) * (one[key].ndim - 1)), other[key], one[key])
    return merged
