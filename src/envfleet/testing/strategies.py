"""Random spaces and random infos, as hypothesis strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from envfleet.testing.requirements import hypothesis

# isort: split
from hypothesis import strategies as st

BOX_DTYPES = [np.float32, np.float64, np.float16, np.uint8, np.int8, np.int16, np.int32, np.int64, np.bool_]
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (1, 1), (0,), (2, 1, 2)]

__all__ = ["BagSpace", "hypothesis", "info_scripts", "space_trees"]


class BagSpace(spaces.Space[frozenset[int]]):
    """A space no library knows: sets of at most `size` small integers."""

    def __init__(self, size: int, seed: int | None = None) -> None:
        super().__init__(None, None, seed)
        self.size = size

    def sample(self, mask: Any = None, probability: Any = None) -> frozenset[int]:
        """Return a random set."""
        if mask is not None or probability is not None:
            raise NotImplementedError("a BagSpace cannot be masked")
        return frozenset(int(number) for number in self.np_random.integers(100, size=self.size))

    def contains(self, x: Any) -> bool:
        """Return whether x is a set of at most `size` numbers."""
        return isinstance(x, frozenset) and len(x) <= self.size

    @property
    def is_np_flattenable(self) -> bool:
        """Sets do not flatten."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BagSpace) and self.size == other.size

    def __hash__(self) -> int:
        return hash(self.size)

    def __repr__(self) -> str:
        return f"BagSpace({self.size})"


def boxes() -> st.SearchStrategy[spaces.Space[Any]]:
    """Boxes of every dtype that matters and of awkward shapes: scalars, empty, several axes."""

    def build(dtype: Any, shape: tuple[int, ...]) -> spaces.Space[Any]:
        low, high = (0, 1) if dtype is np.bool_ else (0 if dtype is np.uint8 else -100, 100)
        return spaces.Box(low, high, shape, dtype)

    return st.builds(build, st.sampled_from(BOX_DTYPES), st.sampled_from(SHAPES))


def array_spaces() -> st.SearchStrategy[spaces.Space[Any]]:
    """Spaces whose samples have one dtype and one shape."""
    return st.one_of(
        boxes(),
        st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-5, 5)),
        st.builds(lambda n: spaces.Discrete(n, dtype=np.int32), st.integers(1, 9)),
        st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 9), min_size=1, max_size=3)),
        st.just(spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), dtype=np.int32)),
        st.builds(spaces.MultiBinary, st.sampled_from([1, 4, [2, 3]])),
    )


def loose_spaces() -> st.SearchStrategy[spaces.Space[Any]]:
    """Spaces whose samples vary in form."""
    node = spaces.Box(-1, 1, (2,), np.float32)
    return st.one_of(
        st.builds(lambda low, more: spaces.Text(low + more, min_length=low), st.integers(0, 3), st.integers(1, 5)),
        st.sampled_from([spaces.Graph(node, None), spaces.Graph(node, spaces.Discrete(3))]),
        st.builds(spaces.Sequence, st.sampled_from([node, spaces.Discrete(4)]), stack=st.booleans()),
        st.just(spaces.Sequence(spaces.Text(4))),
        st.builds(BagSpace, st.integers(1, 4)),
    )


def space_trees() -> st.SearchStrategy[spaces.Space[Any]]:
    """Any of Gymnasium's spaces and a custom one, nested a few levels deep."""

    def nest(children: st.SearchStrategy[spaces.Space[Any]]) -> st.SearchStrategy[spaces.Space[Any]]:
        some = st.lists(children, min_size=1, max_size=3)
        return st.one_of(
            st.builds(spaces.Tuple, some),
            st.builds(spaces.Dict, st.dictionaries(st.sampled_from("abxyz"), children, min_size=1, max_size=3)),
            st.builds(spaces.OneOf, some),
        )

    return st.recursive(st.one_of(array_spaces(), loose_spaces()), nest, max_leaves=6)


def info_values() -> st.SearchStrategy[Any]:
    """Everything environments put into infos: numbers of many types, text, arrays, None, lists."""
    small = st.integers(-100, 100)
    return st.one_of(
        small,
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.booleans(),
        st.builds(np.bool_, st.booleans()),
        st.builds(np.int32, small),
        st.builds(np.int8, small),
        st.builds(np.float32, small),
        st.builds(np.float64, small),
        st.text("ab", max_size=3),
        st.none(),
        st.lists(small, max_size=2),
        info_arrays(),
    )


def info_arrays() -> st.SearchStrategy[Any]:
    """Numeric arrays of a few shapes and dtypes."""

    def build(shape: tuple[int, ...], dtype: Any, value: int) -> Any:
        return np.full(shape, value, dtype)

    dtypes = st.sampled_from([np.float32, np.float64, np.int64, np.int16, np.bool_])
    return st.builds(build, st.sampled_from([(2,), (3,), (2, 2), (0,)]), dtypes, st.integers(0, 100))


def info_dicts() -> st.SearchStrategy[dict[str, Any]]:
    """Info dicts over few keys, so that environments often share and often miss a key, nested up to two levels."""
    inner = st.dictionaries(st.sampled_from("pq"), info_values(), max_size=2)
    nested = st.dictionaries(st.sampled_from("pqr"), st.one_of(info_values(), inner), max_size=2)
    return st.dictionaries(st.sampled_from("abc"), st.one_of(info_values(), info_values(), nested), max_size=3)


def info_scripts(num_envs: int) -> st.SearchStrategy[list[list[dict[str, Any]]]]:
    """Return, for a few steps, one info dict per environment: keys come, go and change their type over time."""
    step = st.lists(info_dicts(), min_size=num_envs, max_size=num_envs)
    return st.lists(step, min_size=1, max_size=5)
