"""Elements of nested spaces as rows of numbers, and back, exactly: `FlatObservations` and `FlatActions`.

Both take single elements and batches of them with any number of leading axes. The leaves lie in a row in the order of
the space, each in C order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from envfleet.errors import InvalidActionError
from envfleet.vector.layout import cast
from envfleet.wrappers._common import check_switch
from envfleet.wrappers._leaves import AnyArray, AnySpace, flatten, named_leaves, unflatten

_EXACT_INTEGERS: dict[np.dtype[Any], int] = {np.dtype(np.float32): 2**24, np.dtype(np.float64): 2**53}
"""Up to here each floating dtype holds every whole number."""

_MOST_SCORES = 65_536
"""A choice among more options than this is not written as scores: one row would take megabytes."""


class _FlatSpace(ABC):
    """The leaves of a nested space as columns of one array.

    Attributes:
        space: the nested space.
        flat_space: the space of rows.
    """

    flat_space: Box | MultiDiscrete

    def __init__(self, space: AnySpace, what: str) -> None:
        self.space = space
        self._leaves = [_Leaf.of(path, leaf, what) for path, leaf in named_leaves(space)]
        self._widths = [self._width(leaf) for leaf in self._leaves]
        self._size = sum(self._widths)

    def flatten(self, elements: Any) -> AnyArray:
        """Rows [..., n] for elements nested like the space, whose leaves are arrays [..., *shape]."""
        values = flatten(self.space, elements)
        lead = np.shape(values[0])[: np.ndim(values[0]) - len(self._leaves[0].shape)] if values else ()
        rows = np.empty((*lead, self._size), self.flat_space.dtype)
        begin = 0
        for leaf, value, width in zip(self._leaves, values, self._widths, strict=True):
            array = cast(value, (*lead, *leaf.shape), leaf.dtype, leaf.path)
            if width:
                rows[..., begin : begin + width] = self._written(leaf, array.reshape((*lead, leaf.size)))
            begin += width
        return rows

    def unflatten(self, rows: Any) -> Any:
        """The elements, new and nested like the space, that rows [..., n] stand for."""
        rows = self._checked(np.asarray(rows))
        lead, begin, values = rows.shape[:-1], 0, []
        for leaf, width in zip(self._leaves, self._widths, strict=True):
            columns = rows[..., begin : begin + width]
            array = (self._read(leaf, columns) if width else np.empty(0, leaf.dtype)).reshape((*lead, *leaf.shape))
            # A single discrete number is a NumPy scalar, as its space's samples are.
            values.append(array[()] if leaf.is_scalar else array)
            begin += width
        return unflatten(self.space, values)

    def _checked(self, rows: AnyArray) -> AnyArray:
        if rows.ndim and rows.shape[-1] == self._size:
            return rows
        raise ValueError(f"Expected rows of {self._size} numbers for {self.space}, got the shape {rows.shape}.")

    @abstractmethod
    def _width(self, leaf: _Leaf) -> int:
        """How many columns a leaf takes."""

    @abstractmethod
    def _written(self, leaf: _Leaf, values: AnyArray) -> AnyArray:
        """The columns [..., width] for a leaf's numbers [..., leaf.size]."""

    @abstractmethod
    def _read(self, leaf: _Leaf, columns: AnyArray) -> AnyArray:
        """A leaf's numbers [..., leaf.size], in its dtype and new, from its columns [..., width]."""


@final
class FlatObservations(_FlatSpace):
    """Observations of a nested space as rows of one Box.

    The numbers stay what they are. If all leaves have one dtype, so has the Box. Otherwise it has the smaller one of
    float32 and float64 that holds every value of every leaf exactly; where neither does, the space is refused.

    Args:
        space: of a single environment's observations: Box, Discrete, MultiDiscrete and MultiBinary, nested in any way.
        as_bytes: write the bytes of the numbers instead, as uint8. That holds any dtype exactly, and in least memory,
            which matters where images lie beside numbers. Only a network that unflattens its input can read them.

    Attributes:
        space: the nested space.
        flat_space: the Box of a single row.
        as_bytes: as given.
    """

    flat_space: Box

    def __init__(self, space: AnySpace, *, as_bytes: bool = False) -> None:
        self.as_bytes = check_switch("as_bytes", as_bytes)
        super().__init__(space, "observation")
        if self.as_bytes:
            self.flat_space = Box(0, 255, (self._size,), np.uint8)
            return
        dtype = _exact_dtype(space, self._leaves)
        low, high = (
            np.concatenate([np.empty(0, dtype), *(np.ravel(bound).astype(dtype) for bound in bounds)])
            for bounds in ([leaf.low for leaf in self._leaves], [leaf.high for leaf in self._leaves])
        )
        self.flat_space = Box(low, high, dtype=dtype.type)

    @property
    def leaves(self) -> list[tuple[int, tuple[int, ...], np.dtype[Any]]]:
        """The columns that each leaf takes, its shape and its dtype, in the order of the space."""
        return [(width, leaf.shape, leaf.dtype) for leaf, width in zip(self._leaves, self._widths, strict=True)]

    def _width(self, leaf: _Leaf) -> int:
        return leaf.size * (leaf.dtype.itemsize if self.as_bytes else 1)

    def _written(self, leaf: _Leaf, values: AnyArray) -> AnyArray:  # noqa: ARG002  all leaves alike
        return np.ascontiguousarray(values).view(np.uint8) if self.as_bytes else values

    def _read(self, leaf: _Leaf, columns: AnyArray) -> AnyArray:
        if self.as_bytes:
            return np.array(columns, np.uint8, order="C").view(leaf.dtype)
        return columns.astype(leaf.dtype)


@final
class FlatActions(_FlatSpace):
    """Actions of a nested space as rows of one MultiDiscrete or one Box.

    - All leaves discrete (Discrete, MultiDiscrete, MultiBinary, Box of integers): a MultiDiscrete. Its numbers are the
      choices, each counted from 0.
    - All leaves continuous (Box of floats): a Box of the widest dtype among them. Its numbers are theirs.
    - Both: such a Box, in which every choice has one score from 0 to 1 per option. The option with the largest score is
      chosen, the first one of several.

    Scores, and not choices as numbers, because options have no order: on the way from the first to the third a policy
    must not pass through the second. Every element of the flat space stands for an action.

    Args:
        space: of a single environment's actions.

    Attributes:
        space: the nested space.
        flat_space: the space of a single row.
    """

    def __init__(self, space: AnySpace) -> None:
        leaves = [leaf for _, leaf in named_leaves(space)]
        floats = [leaf.dtype for leaf in leaves if isinstance(leaf, Box) and leaf.dtype.kind == "f"]
        self._has_scores = 0 < len(floats) < len(leaves)
        super().__init__(space, "action")
        if not self._size:
            raise ValueError(f"There is nothing to choose in the action space {space}: it has no numbers.")
        if not floats:
            self.flat_space = MultiDiscrete([count for leaf in self._leaves for count in leaf.counts])
            return
        dtype: np.dtype[Any] = np.result_type(*floats)
        bounds = [
            (np.zeros(width), np.ones(width)) if leaf.is_discrete else (leaf.low, leaf.high)
            for leaf, width in zip(self._leaves, self._widths, strict=True)
        ]
        low, high = (np.concatenate([np.ravel(end) for end in ends]) for ends in zip(*bounds, strict=True))
        self.flat_space = Box(low.astype(dtype), high.astype(dtype), dtype=dtype.type)

    def _checked(self, rows: AnyArray) -> AnyArray:
        flat = self.flat_space
        if not rows.ndim or rows.shape[-1] != self._size:
            raise InvalidActionError(
                f"Expected rows of {self._size} numbers for actions of {self.space}, got the shape {rows.shape}. "
                "Nothing was stepped."
            )
        if isinstance(flat, Box):
            return rows
        if rows.dtype.kind not in "iu":
            raise InvalidActionError(f"Expected rows of integers, got dtype {rows.dtype}. Nothing was stepped.")
        wrong = (rows < 0) | (rows >= flat.nvec)
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0].tolist())
            column = place[-1]
            where = f" of environment {place[0]}" if len(place) == 2 else ""
            raise InvalidActionError(
                f"Component {column} of the action{where} must be 0 to {flat.nvec[column] - 1}, got "
                f"{rows[place]}. Nothing was stepped."
            )
        return rows

    def _width(self, leaf: _Leaf) -> int:
        if not leaf.is_discrete or not self._has_scores:
            return leaf.size
        if max(leaf.counts, default=0) > _MOST_SCORES:
            raise TypeError(
                f"{leaf.path} is a choice among {max(leaf.counts):,} options beside continuous actions: each option "
                f"takes a number of its own, and there may be at most {_MOST_SCORES:,}. Wrap the environment so that "
                "it offers fewer."
            )
        return sum(leaf.counts)

    def _written(self, leaf: _Leaf, values: AnyArray) -> AnyArray:
        if not leaf.is_discrete:
            return values
        choices: AnyArray = (values.astype(leaf.wide) - np.ravel(leaf.low).astype(leaf.wide)).astype(np.int64)
        if not self._has_scores:
            return choices
        columns = zip(np.moveaxis(choices, -1, 0), leaf.counts, strict=True)
        return np.concatenate([column[..., None] == np.arange(count) for column, count in columns], axis=-1)

    def _read(self, leaf: _Leaf, columns: AnyArray) -> AnyArray:
        if not leaf.is_discrete:
            return columns.astype(leaf.dtype)
        if self._has_scores:
            scores = np.split(columns, np.cumsum(leaf.counts)[:-1], axis=-1)
            columns = np.stack([each.argmax(-1) for each in scores], axis=-1)
        choices: AnyArray = columns.astype(leaf.wide) + np.ravel(leaf.low).astype(leaf.wide)
        return choices.astype(leaf.dtype)


@final
@dataclass(frozen=True, eq=False)
class _Leaf:
    """An array of numbers in a fixed place; `low` and `high` are the least and the greatest, [*shape] each."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: AnyArray
    high: AnyArray
    is_scalar: bool

    @classmethod
    def of(cls, path: str, space: AnySpace, what: str) -> _Leaf:
        """A leaf of an observation or an action space; those without a fixed layout are refused."""
        where = f"the {what} {path!r}" if path else f"the {what}"
        if not isinstance(space, (Box, Discrete, MultiDiscrete, MultiBinary)):
            raise TypeError(
                f"There is no way to flatten {where}: its space is {space}, whose elements have no fixed size or type. "
                "Box, Discrete, MultiDiscrete and MultiBinary can be flattened, nested in Dict and Tuple in any way. "
                "Wrap the environments so that they use one of these, or leave this part out."
            )
        dtype, shape = np.dtype(space.dtype), tuple(space.shape or ())
        if isinstance(space, Box):
            low, high = space.low, space.high
        elif isinstance(space, MultiBinary):
            low, high = np.zeros(shape, dtype), np.ones(shape, dtype)
        else:
            count = space.n if isinstance(space, Discrete) else space.nvec
            low, high = np.asarray(space.start, dtype), np.asarray(space.start + count - 1, dtype)
        return cls(where, shape, dtype, low, high, isinstance(space, Discrete))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_discrete(self) -> bool:
        return self.dtype.kind in "biu"

    @property
    def wide(self) -> np.dtype[Any]:
        """A dtype in which a leaf's integers can be added and subtracted."""
        return self.dtype if self.dtype == np.uint64 else np.dtype(np.int64)

    @property
    def counts(self) -> list[int]:
        """How many values each number of a discrete leaf can have."""
        pairs = zip(np.ravel(self.low).tolist(), np.ravel(self.high).tolist(), strict=True)
        counts = [int(high) - int(low) + 1 for low, high in pairs]
        if max(counts, default=0) >= 2**63:
            raise TypeError(
                f"{self.path} has {max(counts):,} options, more than a MultiDiscrete space can count. Give its Box "
                "narrower bounds."
            )
        return counts


def _exact_dtype(space: AnySpace, leaves: list[_Leaf]) -> np.dtype[Any]:
    """The dtype that holds every value of every leaf."""
    dtypes = {leaf.dtype for leaf in leaves}
    if len(dtypes) <= 1:
        return dtypes.pop() if dtypes else np.dtype(np.float32)
    for dtype, largest in _EXACT_INTEGERS.items():
        if all(_fits(leaf, dtype, largest) for leaf in leaves):
            return dtype
    wide = next(leaf for leaf in leaves if not _fits(leaf, np.dtype(np.float64), 2**53))
    raise TypeError(
        f"No floating dtype holds every value of {wide.path} ({wide.dtype}) exactly, as one Box for {space} would have "
        "to. Give it narrower bounds, or flatten observations as bytes (as_bytes=True), which holds everything."
    )


def _fits(leaf: _Leaf, dtype: np.dtype[Any], largest: int) -> bool:
    if not leaf.is_discrete:
        return bool(np.can_cast(leaf.dtype, dtype, "safe"))
    return leaf.size == 0 or (int(leaf.low.min()) >= -largest and int(leaf.high.max()) <= largest)
