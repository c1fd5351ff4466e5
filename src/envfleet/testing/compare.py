"""Strict comparison of nested results: structure, types that matter, dtypes, shapes and every value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envfleet.testing.reference import Rows, stack_infos, stack_items


def assert_same(actual: Any, expected: Any, where: str = "result") -> None:
    """Assert that two trees of dicts, tuples, arrays and scalars are equal, naming the place where they are not.

    Arrays must agree in dtype, shape and every bit, so that -0.0 is not 0.0; NaN equals NaN, whatever its payload.
    Object arrays are compared element by element; scalars must agree in kind (a boolean is not an integer) and in
    value, the sign of a zero included.
    """
    if isinstance(expected, Mapping):
        assert isinstance(actual, Mapping), f"{where}: expected a mapping, got {actual!r}"
        assert set(actual) == set(expected), f"{where}: keys {list(actual)} != {list(expected)}"
        for key in expected:
            assert_same(actual[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, (tuple, list)):
        assert type(actual) is type(expected), f"{where}: {type(actual)} is not {type(expected)}"
        assert len(actual) == len(expected), f"{where}: length {len(actual)} != {len(expected)}"
        for position, (left, right) in enumerate(zip(actual, expected, strict=True)):
            assert_same(left, right, f"{where}[{position}]")
    elif isinstance(expected, np.ndarray):
        _assert_same_array(actual, expected, where)
    else:
        _assert_same_scalar(actual, expected, where)


def _assert_same_array(actual: Any, expected: np.ndarray[Any, Any], where: str) -> None:
    assert isinstance(actual, np.ndarray), f"{where}: expected an array, got {type(actual)}"
    assert actual.dtype == expected.dtype, f"{where}: dtype {actual.dtype} != {expected.dtype}"
    assert actual.shape == expected.shape, f"{where}: shape {actual.shape} != {expected.shape}"
    if expected.dtype.hasobject:
        assert_same(actual.tolist(), expected.tolist(), where)
    elif actual.tobytes() != expected.tobytes():
        np.testing.assert_array_equal(actual, expected, err_msg=where)
        signs = "the signs of zeros differ"
        np.testing.assert_array_equal(_negative_zeros(actual), _negative_zeros(expected), f"{where}: {signs}")


def _negative_zeros(values: np.ndarray[Any, Any]) -> Any:
    """Where -0.0 stands: of numbers that compare equal, only the two zeros differ in a bit."""
    if values.dtype.kind not in "fc":
        return False
    parts = np.stack([values.real, values.imag])
    return np.signbit(parts) & (parts == 0)


def _assert_same_scalar(actual: Any, expected: Any, where: str) -> None:
    if isinstance(expected, (bool, int, float, np.generic)):
        left, right = np.asarray(actual), np.asarray(expected)
        assert left.shape == (), f"{where}: expected a scalar, got {actual!r}"
        assert left.dtype.kind == right.dtype.kind, f"{where}: {actual!r} is no {right.dtype}"
        assert bool(left == right) or (actual != actual and expected != expected), (
            f"{where}: {actual!r} != {expected!r}"
        )
        assert np.array_equal(_negative_zeros(left), _negative_zeros(right)), f"{where}: {actual!r} is no {expected!r}"
    else:
        assert type(actual) is type(expected), f"{where}: {type(actual)} is not {type(expected)}"
        assert actual == expected, f"{where}: {actual!r} != {expected!r}"


def assert_reset(actual: Any, rows: Rows, space: Any) -> None:
    """Assert that what a vector env's reset returned is the rows of single environments, batched by hand."""
    observations, infos = actual
    assert_same(observations, stack_items(space, rows.observations), "observations")
    assert_same(infos, stack_infos(rows.infos), "infos")


def assert_step(actual: Any, rows: Rows, space: Any) -> None:
    """Assert that what a vector env's step returned is the rows of single environments, batched by hand."""
    observations, rewards, terminated, truncated, infos = actual
    assert_same(rewards, np.array(rows.rewards, np.float64), "rewards")
    assert_same(terminated, np.array(rows.terminated, np.bool_), "terminated")
    assert_same(truncated, np.array(rows.truncated, np.bool_), "truncated")
    assert_reset((observations, infos), rows, space)
