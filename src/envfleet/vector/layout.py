"""A space as a tree of leaves: how values of one environment become arrays, and are refused if they do not fit.

``SpaceLayout`` takes observations and actions apart and puts them together. It does not know where the arrays lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NoReturn, TypeAlias, final

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from envfleet import _core
from envfleet.vector.pages import PageRows

Array: TypeAlias = npt.NDArray[Any]
# One per leaf: an array of shape (rows, *leaf shape), or a list of objects where no layout is fixed.
Columns: TypeAlias = "list[Array | list[Any]]"
RowWriter: TypeAlias = Callable[[int, Any], None]


class LayoutError(ValueError):
    """A value does not fit its space; the message says where, what was expected and what came."""


def cast(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], path: str) -> Array:
    """``value`` as an array of exactly this shape and dtype, or a LayoutError.

    Casts within a kind are allowed (float64 to float32) and so are integers that survive;
    nothing is broadcast, and floats never become integers.
    """
    try:
        array = np.asarray(value)
    except Exception as error:
        raise LayoutError(f"{path}: expected an array of shape {shape}, got {_brief(value)} ({error})") from error
    if array.shape != shape:
        raise LayoutError(f"{path}: expected shape {shape}, got {array.shape}")
    if array.dtype == dtype or np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype, copy=False)
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        narrowed = array.astype(dtype)
        if np.array_equal(narrowed, array):
            return narrowed
        raise LayoutError(f"{path}: the values do not fit into dtype {dtype}, got {_brief(value)}")
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise LayoutError(f"{path}: expected dtype {dtype}, got {array.dtype}, which cannot be cast safely")
    return array.astype(dtype)


def check_no_nan(array: Array, path: str) -> None:
    """Refuses NaN by name; what is no floating-point number has none."""
    wrong = np.isnan(array)
    if wrong.any():
        where = "" if array.ndim == 0 else f" at {[tuple(i) for i in np.argwhere(wrong)[:3].tolist()]}"
        raise LayoutError(f"{path}: expected no NaN (check_nan=True), got {np.count_nonzero(wrong)} of them{where}")


def _brief(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"


def _canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """NumPy's own object for this dtype.

    A space that was copied or pickled brings an equal one of its own, and arrays are compared with it by
    identity at every step.
    """
    canonical = np.dtype(dtype.type)
    return canonical if canonical == dtype else dtype


class _Node(ABC):
    """A part of a space: a leaf, or a Dict or Tuple of parts. Methods read and write columns by leaf."""

    @abstractmethod
    def writer(self, columns: Columns, pages: PageRows) -> RowWriter:
        """A function that checks one environment's value and writes it into its row, also of the page that is open."""

    def plain_writers(self, columns: Columns, pages: PageRows) -> list[tuple[str | None, _core.RowWriter]]:  # noqa: ARG002
        """For an array ``(None, writer)``, for a dict of arrays ``(key, writer)`` each, else nothing."""
        return []

    @abstractmethod
    def batch(self, columns: Columns, copy: bool) -> Any:
        """All rows as one batched value."""

    @abstractmethod
    def rows(self, columns: Columns, count: int) -> list[Any]:
        """One fresh value for each of ``count`` rows."""

    @abstractmethod
    def check_batch(self, value: Any, count: int, checked: Columns) -> None:
        """Appends to ``checked`` one column per leaf taken from a batched value, or raises LayoutError."""

    @abstractmethod
    def copy_value(self, value: Any) -> Any:
        """A copy of one environment's value that the environment cannot overwrite any more."""


@final
class _ArrayLeaf(_Node):
    def __init__(self, index: int, path: str, space: Space[Any], *, refuse_nan: bool) -> None:
        assert space.shape is not None
        self.index, self.path, self.shape = index, path, tuple(space.shape)
        self.dtype = _canonical(np.dtype(space.dtype))
        self.refuse_nan = refuse_nan and self.dtype.kind in "fc"

    def writer(self, columns: Columns, pages: PageRows) -> RowWriter:
        column, shape, dtype, path = columns[self.index], self.shape, self.dtype, self.path
        if shape == () and not self.refuse_nan:
            exact_types = (int, dtype.type) if dtype == np.int64 else (dtype.type,)

            def write_scalar(row: int, value: Any) -> None:
                try:
                    column[row] = value if type(value) in exact_types else cast(value, (), dtype, path)
                except OverflowError:
                    raise LayoutError(f"{path}: the value does not fit into dtype {dtype}, got {value}") from None

            return write_scalar

        def cast_and_write(row: int, value: Any) -> None:
            array = cast(value, shape, dtype, path)
            if self.refuse_nan:
                check_no_nan(array, path)
            column[row] = array

        assert isinstance(column, np.ndarray)
        arrays = pages.arrays.get(self.index, [])
        return _core.RowWriter(column, cast_and_write, self.refuse_nan, arrays, pages.open_page)

    def plain_writers(self, columns: Columns, pages: PageRows) -> list[tuple[str | None, _core.RowWriter]]:
        writer = self.writer(columns, pages)
        return [(None, writer)] if isinstance(writer, _core.RowWriter) else []

    def batch(self, columns: Columns, copy: bool) -> Any:
        column = columns[self.index]
        return _core.fresh_copy(column) if copy and isinstance(column, np.ndarray) else column

    def rows(self, columns: Columns, count: int) -> list[Any]:  # noqa: ARG002
        # One copy for all rows: an environment may keep its action although the block moves on.
        return list(columns[self.index].copy())

    def check_batch(self, value: Any, count: int, checked: Columns) -> None:
        checked.append(cast(value, (count, *self.shape), self.dtype, self.path))

    def copy_value(self, value: Any) -> Any:
        return value.copy() if type(value) is np.ndarray else deepcopy(value)


@final
class _LooseLeaf(_Node):
    """Text, Graph, Sequence, OneOf or a custom space: objects that travel beside the block."""

    def __init__(self, index: int, path: str) -> None:
        self.index, self.path = index, path

    def writer(self, columns: Columns, pages: PageRows) -> RowWriter:  # noqa: ARG002
        return columns[self.index].__setitem__

    def batch(self, columns: Columns, copy: bool) -> Any:
        values = tuple(columns[self.index])
        return deepcopy(values) if copy else values

    def rows(self, columns: Columns, count: int) -> list[Any]:  # noqa: ARG002
        return list(columns[self.index])

    def check_batch(self, value: Any, count: int, checked: Columns) -> None:
        if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str):
            raise LayoutError(f"{self.path}: expected a sequence of {count} values, got {_brief(value)}")
        if len(value) != count:
            raise LayoutError(f"{self.path}: expected {count} values, one per environment, got {len(value)}")
        checked.append(list(value))

    def copy_value(self, value: Any) -> Any:
        return deepcopy(value)


@final
class _DictNode(_Node):
    def __init__(self, path: str, children: dict[str, _Node]) -> None:
        self.path, self.children = path, children

    def _check_keys(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise LayoutError(f"{self.path}: expected a dict, got {_brief(value)}")
        if value.keys() != self.children.keys():
            raise LayoutError(f"{self.path}: expected the keys {list(self.children)}, got {list(value)}")

    def writer(self, columns: Columns, pages: PageRows) -> RowWriter:
        writers = [(key, child.writer(columns, pages)) for key, child in self.children.items()]
        keys = self.children.keys()

        def write_dict(row: int, value: Any) -> None:
            if type(value) is not dict or value.keys() != keys:
                self._check_keys(value)
            for key, write in writers:
                write(row, value[key])

        return write_dict

    def plain_writers(self, columns: Columns, pages: PageRows) -> list[tuple[str | None, _core.RowWriter]]:
        children = [(key, child.plain_writers(columns, pages)) for key, child in self.children.items()]
        are_arrays = all(writers and writers[0][0] is None for _, writers in children)
        return [(key, writers[0][1]) for key, writers in children] if are_arrays else []

    def batch(self, columns: Columns, copy: bool) -> Any:
        return {key: child.batch(columns, copy) for key, child in self.children.items()}

    def rows(self, columns: Columns, count: int) -> list[Any]:
        parts = {key: child.rows(columns, count) for key, child in self.children.items()}
        return [{key: part[row] for key, part in parts.items()} for row in range(count)]

    def check_batch(self, value: Any, count: int, checked: Columns) -> None:
        self._check_keys(value)
        for key, child in self.children.items():
            child.check_batch(value[key], count, checked)

    def copy_value(self, value: Any) -> Any:
        return {key: child.copy_value(value[key]) for key, child in self.children.items()}


@final
class _TupleNode(_Node):
    def __init__(self, path: str, children: tuple[_Node, ...]) -> None:
        self.path, self.children = path, children

    def _check_length(self, value: Any) -> None:
        if not isinstance(value, tuple | list):
            raise LayoutError(f"{self.path}: expected a tuple, got {_brief(value)}")
        if len(value) != len(self.children):
            raise LayoutError(f"{self.path}: expected a tuple of {len(self.children)}, got {len(value)}")

    def writer(self, columns: Columns, pages: PageRows) -> RowWriter:
        writers = [child.writer(columns, pages) for child in self.children]

        def write_tuple(row: int, value: Any) -> None:
            self._check_length(value)
            for write, part in zip(writers, value, strict=True):
                write(row, part)

        return write_tuple

    def batch(self, columns: Columns, copy: bool) -> Any:
        return tuple(child.batch(columns, copy) for child in self.children)

    def rows(self, columns: Columns, count: int) -> list[Any]:
        parts = [child.rows(columns, count) for child in self.children]
        return [tuple(part[row] for part in parts) for row in range(count)]

    def check_batch(self, value: Any, count: int, checked: Columns) -> None:
        self._check_length(value)
        for child, part in zip(self.children, value, strict=True):
            child.check_batch(part, count, checked)

    def copy_value(self, value: Any) -> Any:
        return tuple(child.copy_value(part) for child, part in zip(self.children, value, strict=True))


@final
class SpaceLayout:
    """One environment's space taken apart into leaves.

    Attributes:
        array_leaves: ``(leaf number, shape, dtype)`` of the leaves that lie in the block.
        loose_leaves: The numbers of the leaves that travel beside it.
        is_single_array: Whether the whole space is one array.
    """

    def __init__(self, space: Space[Any], name: str, *, refuse_nan: bool = False) -> None:
        self._num_leaves, self._refuse_nan = 0, refuse_nan
        self.array_leaves: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = []
        self.loose_leaves: list[int] = []
        self._root = self._build(space, name)
        self.is_single_array = isinstance(self._root, _ArrayLeaf)
        self.copy_value = self._root.copy_value
        self.writer = self._root.writer
        self.plain_writers = self._root.plain_writers
        self.batch = self._root.batch
        self.rows = self._root.rows

    def _build(self, space: Space[Any], path: str) -> _Node:
        if isinstance(space, spaces.Dict):
            return _DictNode(path, {key: self._build(sub, f"{path}[{key!r}]") for key, sub in space.spaces.items()})
        if isinstance(space, spaces.Tuple):
            return _TupleNode(path, tuple(self._build(sub, f"{path}[{i}]") for i, sub in enumerate(space.spaces)))
        index = self._num_leaves
        self._num_leaves += 1
        if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            leaf = _ArrayLeaf(index, path, space, refuse_nan=self._refuse_nan)
            self.array_leaves.append((index, leaf.shape, leaf.dtype))
            return leaf
        self.loose_leaves.append(index)
        return _LooseLeaf(index, path)

    def columns(self, arrays: Sequence[Array], count: int) -> Columns:
        """The columns of ``count`` rows: the given arrays, and empty lists for the loose leaves."""
        columns: Columns = [[None] * count for _ in range(self._num_leaves)]
        for (index, _, _), array in zip(self.array_leaves, arrays, strict=True):
            columns[index] = array
        return columns

    def row(self, columns: Columns, row: int) -> Any:
        """One row's value, fresh."""
        if self.is_single_array:
            value = columns[0][row]
            return value.copy() if isinstance(value, np.ndarray) else value
        return self._root.rows([column[row : row + 1] for column in columns], 1)[0]

    def taken(self, columns: Columns, rows: npt.NDArray[np.intp]) -> Any:
        """The given rows as one batched value, fresh."""
        picked: Columns = [
            _core.fresh_rows(column, rows)
            if isinstance(column, np.ndarray)
            else deepcopy([column[row] for row in rows])
            for column in columns
        ]
        return self._root.batch(picked, copy=False)

    def checked(self, value: Any, count: int) -> Columns:
        """A batched value as columns of ``count`` rows, or a LayoutError; writes nothing."""
        checked: Columns = []
        self._root.check_batch(value, count, checked)
        return checked


_SCALAR = ()
_FLOAT64 = np.dtype(np.float64)


def refuse_info(info: Any) -> NoReturn:
    """Says what an info has to be."""
    raise LayoutError(f"info: expected a dict, got {type(info).__name__} {info!r:.80}")


def as_number(reward: Any) -> Any:
    """A reward as a number; arrays of one element are what many environments return."""
    if isinstance(reward, float):
        return reward
    if isinstance(reward, np.ndarray) and reward.shape == (1,):
        reward = reward[0]
    return cast(reward, _SCALAR, _FLOAT64, "reward")


def as_bool(flag: Any, name: str) -> bool:
    """An end-of-episode flag as a bool; numbers count as in Python."""
    if isinstance(flag, bool | np.bool_):
        return bool(flag)
    array = np.asarray(flag)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise LayoutError(f"{name}: expected a bool, got {flag!r}")
    return bool(array.item())
