"""Spaces taken apart into arrays in one block, and what may be cast into them."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from envfleet import AsyncVectorEnv, SyncVectorEnv
from envfleet.errors import InvalidActionError, InvalidOutputError
from envfleet.testing import assert_same
from envfleet.testing.envs import Frame, PlaybackEnv
from envfleet.testing.reference import stack_items
from envfleet.vector.block import BlockLayout
from envfleet.vector.layout import LayoutError, SpaceLayout, cast
from envfleet.vector.pages import PageRows

F32, F64, I64, U8, BOOL = (np.dtype(kind) for kind in (np.float32, np.float64, np.int64, np.uint8, np.bool_))

# --- casts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shape", "dtype", "expected"),
    [
        ([1.5, 2.5], (2,), F32, [1.5, 2.5]),
        (np.array([0.1], F64), (1,), F32, [np.float32(0.1)]),
        ([1, 2], (2,), F32, [1.0, 2.0]),
        ([True, False], (2,), I64, [1, 0]),
        ([True, False], (2,), F64, [1.0, 0.0]),
        (7, (), I64, 7),
        (np.uint8(255), (), I64, 255),
        ([0, 255], (2,), U8, [0, 255]),
        (np.array([2**63 - 1], np.uint64), (1,), I64, [2**63 - 1]),
        (np.array([[]], F64), (1, 0), F32, np.empty((1, 0))),
        ([], (0,), F32, []),
        (((1, 2), (3, 4)), (2, 2), I64, [[1, 2], [3, 4]]),
        (np.array([1.0], ">f8"), (1,), F64, [1.0]),
    ],
)
def test_what_fits_is_cast(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], expected: Any) -> None:
    result = cast(value, shape, dtype, "leaf")
    assert (result.shape, result.dtype) == (shape, dtype)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("value", "shape", "dtype", "message"),
    [
        ([1.0], (4,), F32, r"leaf: expected shape \(4,\), got \(1,\)"),
        (1.0, (1,), F32, r"leaf: expected shape \(1,\), got \(\)"),
        ([1.0], (), F32, r"leaf: expected shape \(\), got \(1,\)"),
        (np.zeros((2, 0)), (0, 2), F32, r"leaf: expected shape \(0, 2\), got \(2, 0\)"),
        ([1.0, 2.0], (2,), I64, "leaf: expected dtype int64, got float64, which cannot be cast safely"),
        (1.0, (), I64, "expected dtype int64, got float64"),
        ([1, 0], (2,), BOOL, "expected dtype bool, got int64"),
        ([1j], (1,), F64, "expected dtype float64, got complex128"),
        (["1"], (1,), F64, "expected dtype float64, got <U1"),
        ([None], (1,), F64, "expected dtype float64, got object"),
        ([300], (1,), U8, r"leaf: the values do not fit into dtype uint8, got list \[300\]"),
        ([-1], (1,), U8, "do not fit into dtype uint8"),
        (np.array([2**63], np.uint64), (1,), I64, "do not fit into dtype int64"),
        (np.array([-1]), (1,), np.dtype(np.uint64), "do not fit into dtype uint64"),
        (2**70, (), I64, "expected dtype int64, got object"),
        ([[1], [2, 3]], (2,), F32, r"leaf: expected an array of shape \(2,\), got list \[\[1\], \[2, 3\]\]"),
        (None, (2,), F32, r"expected shape \(2,\), got \(\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        cast(value, shape, dtype, "leaf")


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(LayoutError) as caught:
        cast([[1], *range(10_000)], (2,), F32, "leaf")
    assert len(str(caught.value)) < 400


# --- layouts ---------------------------------------------------------------------------------------------


def block_of(layout: SpaceLayout, count: int) -> tuple[list[np.ndarray[Any, Any]], Any]:
    arrays = [np.zeros((count, *shape), dtype) for _, shape, dtype in layout.array_leaves]
    return arrays, layout.columns(arrays, count)


NESTED = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (2, 3), np.uint8),
        "parts": spaces.Tuple([spaces.Discrete(5, start=-2), spaces.Text(4), spaces.Dict(bits=spaces.MultiBinary(3))]),
        "empty": spaces.Box(-1, 1, (0,), np.float32),
        "flag": spaces.Box(0, 1, (), np.bool_),
    }
)
SPACES = {
    "nested": NESTED,
    "box": spaces.Box(-1, 1, (2, 2)),
    "scalar box": spaces.Box(-1, 1, (), np.float16),
    "no numbers": spaces.Box(-1, 1, (3, 0), np.float64),
    "discrete": spaces.Discrete(4, dtype=np.int32),
    "multi-discrete": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "text": spaces.Text(6),
    "tuple": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]),
}


@pytest.mark.parametrize("name", SPACES)
def test_rows_written_one_by_one_come_back_as_a_batch(name: str) -> None:
    space = SPACES[name]
    space.seed(5)
    layout, items = SpaceLayout(space, "observation"), [space.sample() for _ in range(3)]
    _, columns = block_of(layout, 3)
    write = layout.writer(columns, PageRows())
    for row in 2, 0, 1:
        write(row, items[row])
    batch = layout.batch(columns, copy=True)
    assert_same(batch, stack_items(space, items))
    assert batch in batch_space(space, 3)
    write(0, items[1])
    assert_same(batch, stack_items(space, items), "a copy")
    assert_same(layout.batch(columns, copy=False), stack_items(space, [items[1], items[1], items[2]]))


@pytest.mark.parametrize("name", SPACES)
def test_a_batch_of_actions_comes_back_as_fresh_rows(name: str) -> None:
    space = SPACES[name]
    space.seed(6)
    layout, items = SpaceLayout(space, "action"), [space.sample() for _ in range(3)]
    arrays, _ = block_of(layout, 3)
    checked = layout.checked(stack_items(space, items), 3)
    rows = layout.rows(checked, 3)
    assert_same(stack_items(space, rows), stack_items(space, items))
    for (leaf, _, _), array in zip(layout.array_leaves, arrays, strict=True):
        array[...] = checked[leaf]
        checked[leaf][...] = 0
    assert_same(stack_items(space, rows), stack_items(space, items), "rows that must not change with the block")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.pop("flag"), r"observation: expected the keys \['empty', 'flag', 'image', 'parts'\], got \["),
        (lambda v: v.update(more=1), "observation: expected the keys"),
        (lambda v: v.update(parts=1), r"observation\['parts'\]: expected a tuple, got int 1"),
        (lambda v: v.update(parts=v["parts"][:2]), r"observation\['parts'\]: expected a tuple of 3, got 2"),
        (lambda v: v["parts"][2].update(bits=[1]), r"observation\['parts'\]\[2\]\['bits'\]: expected shape \(3,\)"),
        (lambda v: v.update(image=np.zeros((2, 3))), r"observation\['image'\]: expected dtype uint8, got float64"),
        (lambda v: v.update(flag=2), r"observation\['flag'\]: expected dtype bool"),
    ],
)
def test_the_error_says_where_in_the_space(change: Any, message: str) -> None:
    layout, value = SpaceLayout(NESTED, "observation"), deepcopy(NESTED.sample())
    change(value)
    with pytest.raises(LayoutError, match=message):
        layout.writer(block_of(layout, 1)[1], PageRows())(0, value)


def test_a_batch_that_does_not_fit_is_refused_by_name() -> None:
    layout = SpaceLayout(NESTED, "action")
    good = stack_items(NESTED, [NESTED.sample(), NESTED.sample()])
    bad = {**good, "parts": (good["parts"][0], ("one",), good["parts"][2])}
    with pytest.raises(LayoutError, match=r"action\['parts'\]\[1\]: expected 2 values, one per environment, got 1"):
        layout.checked(bad, 2)
    with pytest.raises(LayoutError, match=r"action: expected a dict, got int 3"):
        layout.checked(3, 2)
    with pytest.raises(LayoutError, match="action: expected a sequence of 2 values, got str 'ab'"):
        SpaceLayout(spaces.Text(3), "action").checked("ab", 2)


def test_a_copied_value_cannot_be_overwritten() -> None:
    layout, value = SpaceLayout(NESTED, "observation"), NESTED.sample()
    copied, before = layout.copy_value(value), deepcopy(value)
    value["image"] += 1
    value["parts"][2]["bits"][...] = 7
    assert_same(copied, before)


@pytest.mark.parametrize("fleet", [SyncVectorEnv, AsyncVectorEnv])
def test_an_integer_too_large_for_any_dtype_is_refused_by_name(fleet: Any) -> None:
    with fleet([lambda: PlaybackEnv(spaces.Discrete(3), [Frame(2), Frame(2**70)])]) as envs:
        envs.reset()
        with pytest.raises(InvalidOutputError, match=r"observation: .*int64"):
            envs.step([0])


@pytest.mark.parametrize(("space", "action"), [(spaces.Dict(), {}), (spaces.Tuple([]), ())], ids=["dict", "tuple"])
def test_environments_without_a_choice_are_stepped_too(space: Any, action: Any) -> None:
    def make() -> PlaybackEnv:
        return PlaybackEnv(spaces.Discrete(9), [Frame(1), Frame(2, reward=3.0)], space)

    with SyncVectorEnv([make, make]) as envs:
        envs.reset()
        assert envs.step(action)[1].tolist() == [3.0, 3.0]
        assert envs.get_attr("received") == ([action], [action])
        with pytest.raises(InvalidActionError):
            envs.step(3)


# --- the block -------------------------------------------------------------------------------------------

FIELDS = (
    ("control", (320,), U8),
    ("flags", (3,), BOOL),
    ("nothing", (3, 0, 5), F32),
    ("one", (), F64),
    ("halves", (3, 7), np.dtype(np.float16)),
    ("complex", (5,), np.dtype(np.complex128)),
    ("last and empty", (0,), F64),
)


def test_every_array_has_its_own_cache_lines() -> None:
    block = BlockLayout(FIELDS)
    raw = np.zeros(block.size + 64, np.uint8)
    memory = raw[-raw.ctypes.data % 64 :][: block.size]
    arrays = block.arrays(memory)
    assert [(name, array.shape, array.dtype) for name, array in arrays.items()] == list(FIELDS)
    starts = [array.ctypes.data for array in arrays.values() if array.size]
    ends = [array.ctypes.data + array.nbytes for array in arrays.values() if array.size]
    assert all(start % 64 == 0 for start in starts)
    assert all(end <= start for end, (_, start) in zip(ends, pairwise(starts), strict=False))
    assert starts[0] == memory.ctypes.data
    assert ends[-1] <= memory.ctypes.data + block.size
    assert block.size % 64 == 0


def test_arrays_are_views_and_do_not_touch_each_other() -> None:
    block = BlockLayout(FIELDS)
    memory = np.zeros(block.size, np.uint8)
    arrays = block.arrays(memory)
    for name, array in arrays.items():
        array[...] = 1
        for other, untouched in arrays.items():
            assert other == name or not untouched.any()
        array[...] = 0
    block.arrays(memory)["one"][...] = 2.5
    assert arrays["one"] == 2.5


def test_memory_that_is_too_small_is_refused() -> None:
    block = BlockLayout(FIELDS)
    with pytest.raises((TypeError, ValueError)):
        block.arrays(np.zeros(block.size - 64, np.uint8))
