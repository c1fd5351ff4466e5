from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scripted import Maker

from envfleet import InvalidActionError
from envfleet.wrappers import BoundedAction
from envfleet.wrappers.bounded_action import ActionMap, bound_actions

INF = np.inf


class EchoEnv(gym.Env[Any, Any]):
    """Shows the action it was given."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.action_space = space
        self.observation_space = spaces.Box(-INF, INF, space.shape or (), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action.dtype == self.action_space.dtype
        assert action in self.action_space
        return np.asarray(action, dtype=np.float64), 0.0, False, False, {}


def box(low: Any, high: Any, dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_minus_one_to_one_spans_the_bounds_of_each_component(make: Maker, dtype: Any) -> None:
    with closing(BoundedAction(make([lambda: EchoEnv(box([0.0, -2.0], [10.0, 2.0]))] * 5))) as envs:
        envs.reset(seed=0)
        actions = np.array([[-1, -1], [0, 0], [1, 1], [0.5, -0.5], [-7, 1e30]], dtype)
        observations = envs.step(actions)[0]
    np.testing.assert_array_equal(observations, [[0, -2], [5, 0], [10, 2], [7.5, -1], [0, 2]])


def test_an_unbounded_gaussians_sample_is_a_legal_action(make: Maker) -> None:
    with closing(BoundedAction(make([lambda: EchoEnv(box([-3.0, 0.5], [-1.0, 0.7]))] * 4))) as envs:
        assert envs.single_action_space == spaces.Box(-INF, INF, (2,), np.float32)
        assert envs.action_space == spaces.Box(-INF, INF, (4, 2), np.float32)
        envs.reset(seed=0)
        for _ in range(20):  # the environments assert that they are given one of their own actions
            envs.step(envs.action_space.sample())


def test_components_without_bounds_pass_unchanged() -> None:
    low, high = np.array([-INF, 0.0, -INF, -2.0], np.float32), np.array([INF, INF, 3.0, 2.0], np.float32)
    actions = np.array([[-7.3, 41.0, -41.0, 0.25], [1e9, 0.5, 2.5, 9.0]], np.float32)
    expected = np.array([[-7.3, 41.0, -41.0, 0.5], [1e9, 0.5, 2.5, 2.0]], np.float32)
    np.testing.assert_array_equal(bound_actions(actions, low, high), expected)


def test_a_finite_bound_opposite_an_infinite_one_still_holds() -> None:
    low, high = np.array([0.0, -INF]), np.array([INF, 3.0])
    np.testing.assert_array_equal(bound_actions(np.array([[-5.0, 5.0]]), low, high), [[0.0, 3.0]])


def test_infinite_actions_reach_the_bounds_even_where_they_coincide() -> None:
    low, high = np.array([-2.0, 4.0]), np.array([2.0, 4.0])
    np.testing.assert_array_equal(bound_actions(np.array([[INF, -INF]]), low, high), [[2.0, 4.0]])


def test_units_of_minus_one_to_one_are_left_as_they_are() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (100, 3)).astype(np.float32)
    ones = np.ones(3, np.float32)
    mapped = bound_actions(actions, -ones, ones)
    np.testing.assert_array_equal(mapped, actions)
    assert mapped is not actions


bounds = st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
    lambda dtype: st.tuples(
        hnp.arrays(dtype, (2, 3), elements=hnp.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)),
        hnp.arrays(np.float64, (4, 3), elements=st.floats(-2, 2)),
    )
)


@given(case=bounds)
def test_results_lie_exactly_within_the_bounds_in_their_dtype(case: tuple[Any, Any]) -> None:
    ends, actions = case
    low, high = ends.min(axis=0), ends.max(axis=0)
    mapped = bound_actions(actions, low, high)
    assert mapped.dtype == low.dtype
    assert (mapped >= low).all()
    assert (mapped <= high).all()
    order = np.argsort(actions, axis=0)
    assert (np.diff(np.take_along_axis(mapped, order, axis=0), axis=0) >= 0).all()


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_any_shape_of_action_is_mapped(shape: tuple[int, ...]) -> None:
    low, high = np.full(shape, 0.0, np.float32), np.full(shape, 4.0, np.float32)
    mapped = bound_actions(np.full((5, *shape), 0.5), low, high)
    np.testing.assert_array_equal(mapped, np.full((5, *shape), 3.0, np.float32))


def test_the_given_actions_are_not_changed() -> None:
    actions = np.array([[5.0], [0.5]])
    bound_actions(actions, np.array([0.0]), np.array([2.0]))
    np.testing.assert_array_equal(actions, [[5.0], [0.5]])


@pytest.mark.parametrize(
    "space", [spaces.Discrete(3), spaces.MultiBinary(2), spaces.Box(0, 255, (2,), np.uint8)], ids=str
)
def test_other_spaces_are_refused(space: Any) -> None:
    envs = gym.vector.SyncVectorEnv([lambda: EchoEnv(space)] * 2)
    with pytest.raises(TypeError, match=r"needs actions that are a Box of floats, but those of .* are \w+"):
        BoundedAction(envs)


@pytest.mark.parametrize("shape", [(2,), (3, 2), (2, 3), (2, 2, 1)])
def test_a_wrong_shape_is_refused_before_anything_is_stepped(make: Maker, shape: tuple[int, ...]) -> None:
    with closing(BoundedAction(make([lambda: EchoEnv(box([-1.0, -1.0], [1.0, 1.0]))] * 2))) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidActionError, match=r"shape \(2, 2\), got shape .* Nothing was stepped"):
            envs.step(np.zeros(shape, np.float32))
        envs.step(np.zeros((2, 2), np.float32))


def test_integer_actions_and_bounds_are_refused() -> None:
    with pytest.raises(InvalidActionError, match=r"floating actions .* int64"):
        bound_actions(np.zeros((2, 1), np.int64), np.array([0.0]), np.array([1.0]))
    with pytest.raises(TypeError, match=r"floating arrays .* int64"):
        bound_actions(np.zeros((2, 1)), np.array([0]), np.array([1]))
    with pytest.raises(TypeError, match="one shape"):
        bound_actions(np.zeros((2, 1)), np.array([0.0]), np.array([1.0, 2.0]))


def test_a_step_is_hardly_slower() -> None:
    mapping = ActionMap.between(np.full(2, -2.0, np.float32), np.full(2, 2.0, np.float32))
    actions = np.zeros((10, 2), np.float32)

    def microseconds() -> float:
        begin = time.perf_counter()
        for _ in range(1000):
            mapping(actions)
        return (time.perf_counter() - begin) * 1e3

    # 7 µs where it was written; the best of several turns, on a machine that may be busy.
    assert min(microseconds() for _ in range(20)) < 50
