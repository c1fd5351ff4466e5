"""Many frames on one picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envfleet import make_vec, mosaic
from envfleet.testing.envs import CounterEnv


def frames(count: int) -> list[Any]:
    return [np.full((3, 5, 3), 10 + number, np.uint8) for number in range(count)]


@pytest.mark.parametrize(
    ("count", "columns", "shape"),
    [
        (1, None, (3, 5)),
        (2, None, (3, 14)),
        (4, None, (10, 14)),
        (5, None, (10, 23)),
        (5, 1, (31, 5)),
        (2, 9, (3, 14)),
    ],
)
def test_frames_lie_row_by_row(count: int, columns: int | None, shape: tuple[int, int]) -> None:
    picture = mosaic(frames(count), columns)
    assert picture.shape == (*shape, 3)
    assert picture.dtype == np.uint8
    for number in range(count):
        rows, places = np.nonzero((picture == 10 + number).all(axis=2))
        assert len(rows) == 15
        in_a_row = columns or int(np.ceil(np.sqrt(count)))
        assert (rows.min() // 7, places.min() // 9) == divmod(number, min(in_a_row, count))


@pytest.mark.parametrize("backend", ["sync", "process"])
def test_a_fleet_on_one_picture(backend: str) -> None:
    with make_vec(CounterEnv, 3, backend, render_mode="rgb_array") as envs:
        envs.reset()
        assert mosaic(envs.render()).shape == (8, 8, 3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "what envs.render"),
        (None, "what envs.render"),
        ([None, None], 'environment 0 .*render_mode="rgb_array"'),
        ([np.zeros((2, 2, 3))], "environment 0 must be uint8"),
        ([np.zeros((2, 2, 3), np.uint8), np.zeros((2, 3, 3), np.uint8)], r"environment 1 is \(2, 3, 3\)"),
    ],
)
def test_what_is_no_picture_is_refused(given: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        mosaic(given)
    with pytest.raises(ValueError, match="columns"):
        mosaic(frames(2), 0)
