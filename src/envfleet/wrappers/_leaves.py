"""Observations as a flat list of arrays, whatever the nesting of their space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Dict, Space, Tuple

from envfleet.wrappers._common import BoolArray, Infos

AnySpace: TypeAlias = Space[Any]
AnyArray: TypeAlias = npt.NDArray[Any]


def named_leaves(space: AnySpace, path: str = "") -> list[tuple[str, AnySpace]]:
    """Return the leaves of nested Dict and Tuple spaces as (path, space); a bare leaf has the path ""."""
    children: Iterable[tuple[Any, AnySpace]]
    if isinstance(space, Dict):
        children = space.spaces.items()
    elif isinstance(space, Tuple):
        children = enumerate(space.spaces)
    else:
        return [(path, space)]
    paths = ((f"{path}/{key}" if path else str(key), sub) for key, sub in children)
    return [leaf for sub_path, sub in paths for leaf in named_leaves(sub, sub_path)]


def check_leaves(space: AnySpace, supported: tuple[type[AnySpace], ...], wrapper: str) -> list[tuple[str, AnySpace]]:
    """Return `named_leaves(space)`; raise for the first leaf of another type, with advice."""
    leaves = named_leaves(space)
    for path, leaf in leaves:
        if not isinstance(leaf, supported):
            raise TypeError(_refusal(path, leaf, supported, wrapper))
    return leaves


def _refusal(path: str, leaf: AnySpace, supported: tuple[type[AnySpace], ...], wrapper: str) -> str:
    where = f"the observation {path!r}" if path else "the observation"
    names = ", ".join(kind.__name__ for kind in supported)
    advice = (
        "Leave it out with gymnasium.wrappers.vector.FilterObservation first"
        if path
        else "Turn it into a Box first, for example with gymnasium.wrappers.vector.FlattenObservation"
    )
    return (
        f"{wrapper} cannot work on {where}, a {type(leaf).__name__} space: {leaf}. "
        f"It supports {names}, alone or nested in Dict and Tuple. {advice}."
    )


def map_space(space: AnySpace, change: Callable[[AnySpace], AnySpace]) -> AnySpace:
    """Return `space` with every leaf changed."""
    if isinstance(space, Dict):
        return Dict({key: map_space(sub, change) for key, sub in space.spaces.items()})
    if isinstance(space, Tuple):
        return Tuple([map_space(sub, change) for sub in space.spaces])
    return change(space)


def flatten(space: AnySpace, value: Any) -> list[Any]:
    """Return the leaves of anything nested like `space`, in the order of `named_leaves(space)`."""
    if isinstance(space, Dict):
        return [leaf for key, sub in space.spaces.items() for leaf in flatten(sub, value[key])]
    if isinstance(space, Tuple):
        return [leaf for sub, item in zip(space.spaces, value, strict=True) for leaf in flatten(sub, item)]
    return [value]


def unflatten(space: AnySpace, leaves: Iterable[Any]) -> Any:
    """Return `leaves` in the nesting of `space`; the inverse of `flatten`."""
    return _build(space, iter(leaves))


def _build(space: AnySpace, leaves: Iterator[Any]) -> Any:
    if isinstance(space, Dict):
        return {key: _build(sub, leaves) for key, sub in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_build(sub, leaves) for sub in space.spaces)
    return next(leaves)


@dataclass(frozen=True)
class FinalObservations:
    """The last observations of the episodes that ended in a SAME_STEP step.

    `rows` holds the indices of the k environments, intp[k]; `leaves` holds one array [k, *shape] per leaf.
    """

    rows: npt.NDArray[np.intp]
    leaves: list[AnyArray]


def read_final_observations(space: AnySpace, infos: Infos, done: BoolArray) -> FinalObservations | None:
    """Return `infos["final_obs"]` of the finished environments; None if there are none."""
    if "final_obs" not in infos:
        return None
    rows = np.flatnonzero(done & infos.get("_final_obs", done))
    if not rows.size:
        return None
    per_row = [flatten(space, infos["final_obs"][row]) for row in rows]
    return FinalObservations(rows, [np.stack(leaf) for leaf in zip(*per_row, strict=True)])


def replace_final_observations(
    space: AnySpace, infos: Infos, rows: npt.NDArray[np.intp], leaves: Sequence[AnyArray]
) -> Infos:
    """Return a copy of `infos` with new final observations, in Gymnasium's layout.

    The array in the old infos is not changed, because it may belong to the inner environment.
    """
    old = infos["final_obs"]
    final_obs = np.full(len(old), None, dtype=object)
    mask = np.zeros(len(old), dtype=np.bool_)
    for position, row in enumerate(rows):
        # Copies, so that keeping one final observation does not keep the batch it came from.
        final_obs[row] = unflatten(space, [np.array(leaf[position]) for leaf in leaves])
        mask[row] = True
    return {**infos, "final_obs": final_obs, "_final_obs": mask}
