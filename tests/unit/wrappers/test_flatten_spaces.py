"""`FlattenSpaces`: what is flattened comes back to the bit, in every mode and on every engine."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import OBSERVATION_SPACES, SAME_STEP, Maker, Play, plays, run

import envfleet
from envfleet import InvalidActionError
from envfleet.train import Unflatten
from envfleet.wrappers import FlatActions, FlatObservations, FlattenSpaces

FLOATS = [np.float16, np.float32, np.float64]
INTEGERS = [np.bool_, np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64]
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (0,)]


def float_boxes() -> st.SearchStrategy[spaces.Space[Any]]:
    bounds = st.sampled_from([(-np.inf, np.inf), (-2.0, 2.0), (0.0, np.inf)])
    return st.builds(lambda b, s, d: spaces.Box(*b, s, d), bounds, st.sampled_from(SHAPES), st.sampled_from(FLOATS))


def integer_boxes(*, whole: bool) -> st.SearchStrategy[spaces.Space[Any]]:
    def build(dtype: Any, shape: tuple[int, ...], wide: bool) -> spaces.Space[Any]:
        if dtype is np.bool_:
            return spaces.Box(0, 1, shape, np.bool_)
        info = np.iinfo(dtype)
        low, high = (info.min, info.max) if whole and wide else (max(info.min, -3), 9)
        return spaces.Box(low, high, shape, dtype)

    return st.builds(build, st.sampled_from(INTEGERS), st.sampled_from(SHAPES), st.booleans())


def choices() -> st.SearchStrategy[spaces.Space[Any]]:
    counts = st.lists(st.integers(1, 9), min_size=1, max_size=3)
    return st.one_of(
        st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-5, 5)),
        st.builds(
            lambda n, start: spaces.Discrete(n, start=start, dtype=np.int32), st.integers(1, 9), st.integers(-5, 5)
        ),
        counts.map(lambda n: spaces.MultiDiscrete(n, start=[-2] * len(n))),
        st.just(spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), dtype=np.int32)),
        st.builds(spaces.MultiBinary, st.sampled_from([1, 4, [2, 3]])),
    )


def nested(leaves: st.SearchStrategy[spaces.Space[Any]]) -> st.SearchStrategy[spaces.Space[Any]]:
    """Dict and Tuple spaces, a few levels deep."""

    def nest(children: st.SearchStrategy[spaces.Space[Any]]) -> st.SearchStrategy[spaces.Space[Any]]:
        keys = st.sampled_from(["a", "b/c", "x y", "z"])
        return st.one_of(
            st.lists(children, min_size=1, max_size=3).map(spaces.Tuple),
            st.dictionaries(keys, children, min_size=1, max_size=3).map(spaces.Dict),
        )

    return nest(st.recursive(leaves, nest, max_leaves=5))


def assert_same(space: spaces.Space[Any], one: Any, other: Any) -> None:
    """Equal to the bit, and of the same types."""
    if isinstance(space, spaces.Dict):
        assert list(one) == list(other) == list(space.spaces)
        for key, part in space.spaces.items():
            assert_same(part, one[key], other[key])
    elif isinstance(space, spaces.Tuple):
        assert isinstance(other, tuple)
        for part, mine, theirs in zip(space.spaces, one, other, strict=True):
            assert_same(part, mine, theirs)
    else:
        mine, theirs = np.asarray(one), np.asarray(other)
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape) == (space.dtype, theirs.shape)
        assert mine.tobytes() == theirs.tobytes()


observations = nested(st.one_of(float_boxes(), integer_boxes(whole=True), choices()))


@given(space=observations, seed=st.integers(0, 2**31), as_bytes=st.booleans())
def test_observations_come_back_to_the_bit(space: Any, seed: int, as_bytes: bool) -> None:
    if not as_bytes and is_too_wide(space):
        with pytest.raises(TypeError, match="as_bytes=True"):
            FlatObservations(space)
        return
    flat = FlatObservations(space, as_bytes=as_bytes)
    space.seed(seed)
    single = space.sample()
    row = flat.flatten(single)
    assert row in flat.flat_space
    assert_same(space, single, flat.unflatten(row))
    assert flat.unflatten(row) in space
    batched = batch_space(space, 3)
    batched.seed(seed)
    batch = batched.sample()
    rows = flat.flatten(batch)
    assert rows.shape == (3, *flat.flat_space.shape)
    assert_same(space, batch, flat.unflatten(rows))
    for element, each in zip(iterate(batched, batch), rows, strict=True):
        np.testing.assert_array_equal(flat.flatten(element), each)


def is_too_wide(space: Any) -> bool:
    """Whether numbers that float64 cannot hold lie beside numbers of another dtype."""
    leaves = leaves_of(space)
    boxes = [leaf for leaf in leaves if isinstance(leaf, spaces.Box) and leaf.dtype.kind in "iu" and leaf.low.size]
    return len({leaf.dtype for leaf in leaves}) > 1 and any(int(leaf.high.max()) > 2**53 for leaf in boxes)


def leaves_of(space: Any) -> list[Any]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return [leaf for part in parts for leaf in leaves_of(part)]
    return [space]


@given(space=observations, seed=st.integers(0, 2**31), as_bytes=st.booleans(), as_floats=st.booleans())
@settings(max_examples=60)
def test_a_network_sees_the_same_numbers(space: Any, seed: int, as_bytes: bool, as_floats: bool) -> None:
    as_bytes = as_bytes or is_too_wide(space)
    flat, module = FlatObservations(space, as_bytes=as_bytes), Unflatten(space, as_bytes=as_bytes)
    batched = batch_space(space, 2)
    batched.seed(seed)
    batch = batched.sample()
    rows = torch.from_numpy(flat.flatten(batch))
    tensors = module(rows.float() if as_floats and as_bytes else rows)

    def arrays(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: arrays(part) for key, part in tree.items()}
        return tuple(map(arrays, tree)) if isinstance(tree, tuple) else tree.numpy()

    assert_same(space, batch, arrays(tensors))


@given(space=nested(st.one_of(float_boxes(), integer_boxes(whole=False), choices())), seed=st.integers(0, 2**31))
def test_actions_come_back_to_the_bit(space: Any, seed: int) -> None:
    if not sum(np.prod(leaf.shape, dtype=int) for leaf in leaves_of(space)):
        with pytest.raises(ValueError, match="nothing to choose"):
            FlatActions(space)
        return
    flat = FlatActions(space)
    kinds = {leaf.dtype.kind == "f" for leaf in leaves_of(space)}
    assert isinstance(flat.flat_space, spaces.Box if True in kinds else spaces.MultiDiscrete)
    space.seed(seed)
    single = space.sample()
    row = flat.flatten(single)
    assert row in flat.flat_space
    assert_same(space, single, flat.unflatten(row))
    batched = batch_space(space, 3)
    batched.seed(seed)
    batch = batched.sample()
    assert_same(space, batch, flat.unflatten(flat.flatten(batch)))
    # The other way round: every row stands for an action.
    flat.flat_space.seed(seed)
    assert flat.unflatten(flat.flat_space.sample()) in space


def test_the_smallest_dtype_that_is_exact_is_taken() -> None:
    def dtype(*leaves: Any, as_bytes: bool = False) -> Any:
        return FlatObservations(spaces.Tuple(leaves), as_bytes=as_bytes).flat_space.dtype

    vector = spaces.Box(-1, 1, (2,), np.float32)
    assert dtype(vector, spaces.Discrete(9)) == np.float32
    assert dtype(vector, spaces.Discrete(2**24 + 1)) == np.float32
    assert dtype(vector, spaces.Discrete(2**24 + 2)) == np.float64
    assert dtype(spaces.Discrete(3), spaces.MultiDiscrete([4, 5])) == np.int64
    assert dtype(vector, spaces.Box(-1, 1, (), np.float64)) == np.float64
    assert dtype(vector, spaces.Box(0, 255, (4,), np.uint8), as_bytes=True) == np.uint8
    with pytest.raises(TypeError, match=r"the observation '1' \(int64\).*as_bytes=True"):
        dtype(vector, spaces.Box(-(2**63), 2**63 - 1, (), np.int64))


def test_bounds_are_those_of_the_leaves() -> None:
    space = spaces.Dict(a=spaces.Discrete(5, start=-2), b=spaces.Box(np.float32([0, -np.inf]), np.float32([1, np.inf])))
    flat = FlatObservations(space).flat_space
    np.testing.assert_array_equal(flat.low, np.float32([-2, 0, -np.inf]))
    np.testing.assert_array_equal(flat.high, np.float32([2, 1, np.inf]))


def test_choices_beside_continuous_actions_are_scores() -> None:
    space = spaces.Dict(gear=spaces.Discrete(3, start=1), steer=spaces.Box(-2.0, 2.0, (1,)))
    flat = FlatActions(space)
    assert flat.flat_space == spaces.Box(np.float32([0, 0, 0, -2]), np.float32([1, 1, 1, 2]))
    np.testing.assert_array_equal(flat.flatten({"gear": 3, "steer": np.float32([0.5])}), np.float32([0, 0, 1, 0.5]))
    action = flat.unflatten(np.float32([[0.2, 0.9, 0.9, 1.5]]))
    np.testing.assert_array_equal(action["gear"], [2])
    np.testing.assert_array_equal(action["steer"], np.float32([[1.5]]))


@pytest.mark.parametrize(
    "leaf", [spaces.Text(4), spaces.Graph(spaces.Box(0, 1, (2,)), None), spaces.Sequence(spaces.Discrete(2))], ids=str
)
def test_what_has_no_fixed_size_is_refused_in_a_sentence(leaf: Any) -> None:
    for flat, what in ((FlatObservations, "observation"), (FlatActions, "action")):
        with pytest.raises(TypeError, match=rf"no way to flatten the {what} 'x/0'.*no fixed size"):
            flat(spaces.Dict(x=spaces.Tuple([leaf])))


def test_choices_that_cannot_be_counted_are_refused() -> None:
    everything = spaces.Box(-(2**63), 2**63 - 1, (), np.int64)
    with pytest.raises(TypeError, match="more than a MultiDiscrete space can count"):
        FlatActions(spaces.Tuple([everything]))
    with pytest.raises(TypeError, match="at most 65,536"):
        FlatActions(spaces.Tuple([spaces.Discrete(10**6), spaces.Box(-1, 1, (1,))]))


class Robot(gym.Env[Any, Any]):
    """Shows the action it was given, beside numbers of other dtypes; its episodes take three steps."""

    action_space = spaces.Dict(gear=spaces.Discrete(3, start=1), lamps=spaces.MultiBinary(2))
    observation_space = spaces.Tuple(
        [spaces.Dict(gear=spaces.Discrete(4), lamps=spaces.MultiBinary(2)), spaces.Box(-9, 9, (2,), np.float64)]
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation({"gear": 0, "lamps": np.zeros(2, np.int8)}), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        self._steps += 1
        return self._observation(action), 1.0, self._steps == 3, False, {}

    def _observation(self, action: Any) -> Any:
        return ({"gear": action["gear"], "lamps": action["lamps"]}, self.np_random.normal(size=2).clip(-9, 9))


def test_a_fleet_acts_and_is_seen_through_rows(make: Maker) -> None:
    with closing(FlattenSpaces(make([Robot] * 2))) as envs:
        assert envs.single_action_space == spaces.MultiDiscrete([3, 2, 2])
        assert envs.action_space == batch_space(envs.single_action_space, 2)
        assert envs.single_observation_space.dtype == np.float64
        first, _ = envs.reset(seed=3)
        rows, *_ = envs.step(np.array([[2, 1, 0], [0, 0, 1]]))
        assert envs.observation_space.contains(rows)
        np.testing.assert_array_equal(rows[:, :3], [[3, 1, 0], [1, 0, 1]])
        rows[:] = 0  # belongs to the caller
        assert first.any()
        assert envs.flat_observations is not None
        nested, numbers = envs.flat_observations.unflatten(first)
        assert nested["lamps"].dtype == np.int8
        np.testing.assert_array_equal(numbers[0], np.random.default_rng(3).normal(size=2))


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ([[3, 0, 0], [0, 0, 0]], r"Component 0 of the action of environment 0 must be 0 to 2, got 3"),
        ([[0, 0, 0], [0, -1, 0]], r"Component 1 of the action of environment 1 must be 0 to 1, got -1"),
        ([[0, 0], [0, 0]], r"rows of 3 numbers .* got the shape \(2, 2\)"),
        ([[0.0, 0, 0], [0, 0, 0]], r"rows of integers, got dtype float64"),
    ],
)
def test_actions_that_stand_for_nothing_are_refused(make: Maker, action: Any, said: str) -> None:
    with closing(FlattenSpaces(make([Robot] * 2))) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidActionError, match=f"{said}.*Nothing was stepped"):
            envs.step(np.array(action))
        envs.step(np.zeros((2, 3), np.int64))


@given(play=plays(kinds=("dict", "tuple", "finite", "vector")), as_bytes=st.booleans())
@settings(deadline=None, max_examples=20)  # some start processes
def test_every_observation_is_the_one_of_the_environment(make: Maker, play: Play, as_bytes: bool) -> None:
    space = OBSERVATION_SPACES[play.kind]
    with closing(FlattenSpaces(play.vector_env(make), as_bytes=as_bytes)) as envs:
        flat = envs.flat_observations
        assert (flat is None) == (play.kind == "vector")

        def row_of(observation: Any) -> Any:
            return observation if flat is None else flat.flatten(observation)

        for operation, (rows, *_, infos) in run(envs, play.operations):
            for index, row in enumerate(operation.rows):
                np.testing.assert_array_equal(rows[index], row_of(row.obs))
                if flat is not None:
                    assert_same(space, row.obs, flat.unflatten(rows[index]))
                if row.final is not None:
                    assert play.mode is SAME_STEP
                    np.testing.assert_array_equal(infos["final_obs"][index], row_of(row.final))
                    assert infos["_final_obs"][index]


def test_first_ready_fleets_send_and_receive_rows() -> None:
    maker = envfleet.AsyncVectorEnv([Robot] * 4, batch_size=2, autoreset_mode=SAME_STEP)
    with closing(FlattenSpaces(maker)) as envs:
        envs.reset(seed=0)
        envs.send(np.array([[2, 1, 1]] * 4))
        seen = 0
        for _ in range(12):
            rows, _, terminated, _, infos = envs.recv()
            assert rows.shape == (2, 5)
            for place in np.flatnonzero(terminated):
                seen += 1
                np.testing.assert_array_equal(infos["final_obs"][place][:3], [3, 1, 1])
            envs.send(np.array([[2, 1, 1]] * 2), infos["env_id"])
        assert seen
