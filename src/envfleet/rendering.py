"""Pictures as environments draw them: what counts as one, and many of them on one picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet.vector.arguments import positive_integer

Frame: TypeAlias = npt.NDArray[np.uint8]
"""A picture as `render()` gives it with render_mode="rgb_array": uint8[height, width, 3]."""

GROUND = (24, 24, 24)
"""The colour between pictures, red, green and blue."""

GAP = 4
"""Pixels between pictures."""


def check_frame(what: str, frame: Any) -> None:
    """Refuses what is no picture; `frame` may be anything, as renderers return anything."""
    if not isinstance(frame, np.ndarray):
        kind = type(frame).__name__
        hint = ' Make the environment with render_mode="rgb_array".' if frame is None or isinstance(frame, str) else ""
        raise TypeError(f"{what} must be a NumPy array uint8[height, width, 3], got {kind}.{hint}")
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        hint = " Multiply by 255 and cast." if frame.dtype.kind == "f" else ""
        raise ValueError(
            f"{what} must be uint8[height, width, 3], red, green and blue from 0 to 255; got {frame.dtype} of shape "
            f"{frame.shape}.{hint}"
        )


@final
class Tiles:
    """Places of one size on a picture, in rows and columns.

    Args:
        count: How many.
        height: Pixels of each.
        width: Pixels of each.
        columns: How many places a row has.

    Attributes:
        picture: All of them, uint8[height, width, 3].
    """

    def __init__(self, count: int, height: int, width: int, columns: int) -> None:
        self._height, self._width, self._columns = height, width, columns
        rows = math.ceil(count / columns)
        self.picture: Frame = np.empty((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), np.uint8)
        self.picture[:] = GROUND

    def __getitem__(self, place: int) -> Frame:
        """A view on one place, counted from 0, row by row."""
        row, column = divmod(place, self._columns)
        top, left = row * (self._height + GAP), column * (self._width + GAP)
        return self.picture[top : top + self._height, left : left + self._width]


def mosaic(frames: Sequence[npt.NDArray[np.uint8]], columns: int | None = None) -> npt.NDArray[np.uint8]:
    """Puts the frames of a fleet side by side on one picture: ``mosaic(envs.render())``.

    Args:
        frames: One per environment, all of one size, as ``envs.render()`` returns them.
        columns: How many are in a row; by default as many as there are rows, or one more.

    Returns:
        uint8[height, width, 3].
    """
    if not isinstance(frames, Sequence | np.ndarray) or not len(frames):
        raise TypeError(f"frames must be what envs.render() returns, one per environment, got {frames!r:.80}.")
    for index, frame in enumerate(frames):
        check_frame(f"the frame of environment {index}", frame)
        if frame.shape != frames[0].shape:
            raise ValueError(
                f"All frames must have one size: that of environment {index} is {frame.shape}, that of environment 0 "
                f"{frames[0].shape}."
            )
    height, width, _ = frames[0].shape
    wanted = math.ceil(math.sqrt(len(frames))) if columns is None else positive_integer("columns", columns)
    tiles = Tiles(len(frames), height, width, min(wanted, len(frames)))
    for index, frame in enumerate(frames):
        tiles[index][:] = frame
    return tiles.picture
