"""Pictures as environments give them: what counts as one, and small ones made large enough to look at."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Frame: TypeAlias = npt.NDArray[np.uint8]
"""A picture as `render()` gives it with render_mode="rgb_array": uint8[height, width, 3]."""

_LARGE_ENOUGH = 480
"""Pixels of the longer side; smaller pictures are enlarged."""


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


def enlargement(height: int, width: int) -> int:
    """How many times a picture of this size must be enlarged to have at least 480 pixels on its longer side."""
    return max(1, math.ceil(_LARGE_ENOUGH / max(height, width)))


def enlarged(frame: Frame, times: int) -> Frame:
    """Every pixel as a square of `times` x `times`: the edges of a small grid stay sharp."""
    return frame if times == 1 else frame.repeat(times, axis=1).repeat(times, axis=0)
