"""What holds of the engine's parts whatever they are given."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from envfleet.plan import StepCost, choose
from envfleet.testing import assert_same
from envfleet.testing.envs import CounterConfig, CounterEnv
from envfleet.testing.reference import stack_infos
from envfleet.testing.strategies import info_scripts
from envfleet.vector.block import BlockLayout
from envfleet.vector.fused_env import FusedEnv, quicken, restore
from envfleet.vector.infos import ROW_BYTES, InfoReader, InfoReport, InfoWriter
from envfleet.vector.layout import LayoutError, cast

# No deadline: other work on the same cores must not fail a test.
RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
NUM_ENVS = 4
INTEGER_DTYPES = [np.dtype(code) for code in "bhilqBHILQ"]
NUMBER_DTYPES = [*INTEGER_DTYPES, np.dtype(np.bool_), *(np.dtype(code) for code in "efd")]

# --- infos -----------------------------------------------------------------------------------------------


def write(writer: InfoWriter, infos: list[dict[str, Any]]) -> InfoReport | None:
    writer.begin()
    for row, info in enumerate(infos):
        if info:
            writer.put(row, info)
    return writer.end()


def batched_over(script: list[list[dict[str, Any]]], edges: list[int]) -> list[dict[str, Any]]:
    """The batched infos of every step, the environments being split at ``edges``."""
    rows, kinds = np.zeros((NUM_ENVS, ROW_BYTES), np.uint8), np.zeros(NUM_ENVS, np.uint8)
    bounds = list(pairwise([0, *edges, NUM_ENVS]))
    writers = [InfoWriter(rows[first:last], kinds[first:last]) for first, last in bounds]
    reader = InfoReader(rows, kinds, bounds)
    batched = []
    for infos in script:
        reports = [write(w, infos[first:last]) for w, (first, last) in zip(writers, bounds, strict=True)]
        reader.absorb(reports)
        batched.append(reader.read(reports))
    return batched


@RELAXED
@given(info_scripts(NUM_ENVS), st.sets(st.integers(1, NUM_ENVS - 1)))
def test_infos_do_not_depend_on_how_environments_are_spread(script: Any, cuts: set[int]) -> None:
    assert_same(batched_over(script, sorted(cuts)), [stack_infos(infos) for infos in script])


PLAIN = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.sampled_from(NUMBER_DTYPES).flatmap(npst.from_dtype),
)


@RELAXED
@given(
    st.lists(
        st.lists(st.dictionaries(st.sampled_from("abc"), PLAIN), min_size=NUM_ENVS, max_size=NUM_ENVS),
        min_size=1,
        max_size=4,
    ),
    st.sets(st.integers(1, NUM_ENVS - 1)),
)
def test_numbers_do_not_depend_on_how_environments_are_spread(script: Any, cuts: set[int]) -> None:
    together, apart = batched_over(script, []), batched_over(script, sorted(cuts))
    for left, right in zip(together, apart, strict=True):
        assert left.keys() == right.keys()
        for key in left:
            assert left[key].dtype == right[key].dtype
            assert repr(left[key].tolist()) == repr(right[key].tolist())  # repr: NaN is NaN, -0.0 is not 0.0


# --- casts -----------------------------------------------------------------------------------------------


@RELAXED
@given(npst.arrays(st.sampled_from(NUMBER_DTYPES), npst.array_shapes(min_dims=0, min_side=0)), st.data())
def test_a_cast_keeps_the_numbers_or_is_refused(array: Any, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(NUMBER_DTYPES))
    with np.errstate(all="ignore"):
        expected = array.astype(dtype)
    same_kind = np.can_cast(array.dtype, dtype, "same_kind")
    integers = array.dtype.kind in "iu" and dtype.kind in "iu"
    allowed = np.array_equal(expected.astype(object), array.astype(object)) if integers else same_kind
    if not allowed:
        with pytest.raises(LayoutError, match="leaf"):
            cast(array, array.shape, dtype, "leaf")
        return
    with np.errstate(over="ignore"):
        result = cast(array, array.shape, dtype, "leaf")
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)


@RELAXED
@given(npst.array_shapes(min_dims=0, min_side=0), npst.array_shapes(min_dims=0, min_side=0))
def test_nothing_is_ever_broadcast(given_shape: tuple[int, ...], shape: tuple[int, ...]) -> None:
    assume(given_shape != shape)
    with pytest.raises(LayoutError, match="expected shape"):
        cast(np.zeros(given_shape), shape, np.dtype(np.float64), "leaf")


# --- the block -------------------------------------------------------------------------------------------


@RELAXED
@given(st.lists(st.tuples(npst.array_shapes(min_dims=0, min_side=0), st.sampled_from(NUMBER_DTYPES)), max_size=6))
def test_arrays_of_a_block_are_aligned_and_apart(leaves: list[tuple[tuple[int, ...], Any]]) -> None:
    block = BlockLayout(tuple((str(i), shape, dtype) for i, (shape, dtype) in enumerate(leaves)))
    memory = np.zeros(block.size, np.uint8)
    arrays = [array for array in block.arrays(memory).values() if array.size]
    base = memory.__array_interface__["data"][0]
    starts = [array.__array_interface__["data"][0] - base for array in arrays]
    ends = [start + array.nbytes for start, array in zip(starts, arrays, strict=True)]
    assert all(start % 64 == 0 for start in starts)
    assert all(end <= start for end, start in zip(ends, [*starts[1:], block.size], strict=False))


# --- the quick action space ------------------------------------------------------------------------------

CANDIDATES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-12, 12),
    st.booleans(),
    st.floats(),
    st.none(),
    st.text(max_size=2),
    st.sampled_from(NUMBER_DTYPES).flatmap(npst.from_dtype),
    st.builds(lambda dtype, value: dtype.type(value), st.sampled_from(INTEGER_DTYPES), st.integers(0, 12)),
    npst.arrays(st.sampled_from(NUMBER_DTYPES), st.sampled_from([(), (1,), (2,)]), elements=st.integers(0, 1)),
    st.lists(st.integers(0, 3), max_size=2),
)


@RELAXED
@given(
    st.builds(
        spaces.Discrete, st.integers(1, 12), start=st.integers(-6, 6), dtype=st.sampled_from([np.int64, np.int32])
    ),
    st.lists(CANDIDATES, min_size=1, max_size=8),
)
def test_a_quick_space_contains_what_the_space_contains(space: spaces.Discrete, values: list[Any]) -> None:
    expected = [space.contains(value) for value in values]
    inside = list(range(int(space.start) - 1, int(space.start + space.n) + 1))
    before = dict(vars(space))
    quicken(space)
    assert [space.contains(value) for value in values] == expected
    assert [space.dtype.type(value) in space for value in inside] == [False, *[True] * int(space.n), False]
    assert space == spaces.Discrete(space.n, start=space.start, dtype=space.dtype)
    assert space.sample() in space
    restore(space)
    assert type(space) is spaces.Discrete
    assert vars(space).keys() == before.keys()


# --- fused wrappers --------------------------------------------------------------------------------------

LAYERS = {
    "limit": lambda env, limit: TimeLimit(env, limit),
    "order": lambda env, _: OrderEnforcing(env),
    "check": lambda env, _: PassiveEnvChecker(env),
}
OPERATIONS = st.sampled_from(["step", "step", "step", "reset", "look", "limit", "elapsed"])


@RELAXED
@given(
    st.lists(st.tuples(st.sampled_from(sorted(LAYERS)), st.integers(1, 6)), max_size=5),
    st.lists(st.tuples(OPERATIONS, st.integers(1, 7)), max_size=40),
)
def test_any_stack_of_wrappers_behaves_fused_as_it_does_apart(
    layers: list[tuple[str, int]], operations: list[tuple[str, int]]
) -> None:
    plain, wrapped = CounterEnv(CounterConfig(length=5)), CounterEnv(CounterConfig(length=5))
    for layer, limit in layers:
        plain, wrapped = LAYERS[layer](plain, limit), LAYERS[layer](wrapped, limit)  # type: ignore[assignment]
    member = FusedEnv(wrapped)
    assert_same(member.reset(seed=1), plain.reset(seed=1))
    for operation, number in operations:
        if operation == "step":
            assert_same(member.step(number), plain.step(number))
        elif operation == "reset":
            assert_same(member.reset(seed=number), plain.reset(seed=number))
        else:
            look_or_set(member, plain, operation, number)


def look_or_set(member: FusedEnv, plain: Any, operation: str, number: int) -> None:
    """The same access from outside to both."""
    member.before_access()
    attribute = "_max_episode_steps" if operation == "limit" else "_elapsed_steps"
    assert member.env.has_wrapper_attr(attribute) == plain.has_wrapper_attr(attribute)
    if plain.has_wrapper_attr(attribute):
        assert member.env.get_wrapper_attr(attribute) == plain.get_wrapper_attr(attribute)
        if operation != "look":
            member.env.set_wrapper_attr(attribute, number)
            plain.set_wrapper_attr(attribute, number)
    member.after_access()


# --- the plan --------------------------------------------------------------------------------------------

COUNTS, SECONDS = st.integers(1, 500), st.floats(1e-7, 10)


@RELAXED
@given(COUNTS, st.integers(1, 128), SECONDS, st.floats(1, 100))
def test_a_slower_environment_never_goes_back_to_sync(n: int, cores: int, wall: float, factor: float) -> None:
    if choose(n, cores, StepCost(wall, wall)).backend == "process":
        assert choose(n, cores, StepCost(wall * factor, wall * factor)).backend == "process"


@RELAXED
@given(COUNTS, st.integers(1, 128), SECONDS, st.floats(0, 1))
def test_a_plan_can_be_carried_out(n: int, cores: int, wall: float, busy: float) -> None:
    plan = choose(n, cores, StepCost(wall, wall * busy))
    assert plan.sentence.startswith(plan.backend)
    assert plan.sentence.endswith(".")
    workers = plan.vector_kwargs.get("num_workers", 1)
    assert 1 <= workers <= n
    assert (plan.backend == "sync") == (plan.vector_kwargs == {})
    if plan.vector_kwargs.get("caller_works"):
        assert 2 <= workers <= cores
