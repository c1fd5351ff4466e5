from __future__ import annotations

import math

import numpy as np
import pytest

from envfleet.rendering import Frame
from envfleet.train.filming.canvas import Canvas
from envfleet.train.filming.frames import enlarged, enlargement

ANYWHERE = (math.inf, math.inf)


def white(height: int, width: int) -> Frame:
    return np.full((height, width, 3), 255, np.uint8)


@pytest.mark.parametrize(
    ("height", "width", "times"), [(5, 5, 96), (64, 64, 8), (210, 160, 3), (256, 256, 2), (480, 300, 1), (400, 600, 1)]
)
def test_the_longer_side_has_at_least_480_pixels(height: int, width: int, times: int) -> None:
    assert enlargement(height, width) == times
    canvas = Canvas((height, width, 3), 1, captions=False, room=ANYWHERE)
    assert canvas.picture.shape == (height * times, width * times, 3)


def test_every_pixel_becomes_a_square() -> None:
    frame = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    large = enlarged(frame, 3)
    assert large.shape == (6, 6, 3)
    for row in range(6):
        for column in range(6):
            np.testing.assert_array_equal(large[row, column], frame[row // 3, column // 3])


@pytest.mark.parametrize("ground", [0, 255])
def test_captions_are_readable_whatever_the_picture_is(ground: int) -> None:
    canvas = Canvas((400, 600, 3), 1, captions=True, room=ANYWHERE)
    frame = np.full((400, 600, 3), ground, np.uint8)
    canvas.draw(0, frame, ["step 7"], ended=False, darker=False)
    np.testing.assert_array_equal(canvas.picture[:400], frame)
    band = canvas.picture[400:]
    assert 20 <= len(band) <= 40
    assert band.max() > 220
    assert np.median(band) < 30


def test_the_longest_text_that_fits_is_taken() -> None:
    texts = ["a long line of text, " * 9, "a shorter one", "x"]
    wide, narrow, tiny = (Canvas((480, width, 3), 1, captions=True, room=ANYWHERE) for width in (600, 60, 4))
    for canvas in (wide, narrow, tiny):
        canvas.draw(0, white(*canvas.picture.shape[:2])[:480], texts, ended=False, darker=False)
    used = [int((canvas.picture[480:] > 100).any(axis=(0, 2)).sum()) for canvas in (wide, narrow, tiny)]
    assert used[0] > 40 > used[1] > 0
    assert used[2] == 0


@pytest.mark.parametrize(
    ("count", "shape"), [(2, (400, 600, 3)), (3, (30, 900, 3)), (9, (5, 5, 3)), (7, (1080, 1920, 3)), (12, (90, 30, 3))]
)
def test_a_mosaic_has_a_place_for_each_and_fits(count: int, shape: tuple[int, int, int]) -> None:
    canvas = Canvas(shape, count, captions=True, room=(1920, 1080))
    height, width = canvas.picture.shape[:2]
    assert height <= 1080
    assert width <= 1920
    covered = np.zeros((height, width), bool)
    for place in range(count):
        before = canvas.picture.copy()
        canvas.draw(place, white(*shape[:2]), [], ended=False, darker=False)
        changed = (canvas.picture != before).any(axis=2)
        assert changed.any()
        assert not (changed & covered).any()
        covered |= changed


def test_what_has_ended_is_darker_and_its_text_has_another_colour() -> None:
    canvas = Canvas((100, 100, 3), 2, captions=True, room=(1920, 1080))
    canvas.draw(0, white(100, 100), ["return 1"], ended=True, darker=True)
    canvas.draw(1, white(100, 100), ["return 1"], ended=False, darker=True)
    width = canvas.picture.shape[1]
    ended, playing = canvas.picture[:, : width // 2 - 4], canvas.picture[:, width // 2 + 4 :]
    assert ended[:50].max() == 127
    assert playing[:50].min() == 255
    colours = ended.reshape(-1, 3).astype(int)
    assert (colours[:, 0] - colours[:, 2]).max() > 100
    assert np.ptp(playing, axis=2).max() == 0
