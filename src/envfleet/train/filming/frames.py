"""Small pictures made large enough to look at."""

from __future__ import annotations

import math

from envfleet.rendering import Frame

_LARGE_ENOUGH = 480
"""Pixels of the longer side; smaller pictures are enlarged."""


def enlargement(height: int, width: int) -> int:
    """How many times a picture of this size must be enlarged to have at least 480 pixels on its longer side."""
    return max(1, math.ceil(_LARGE_ENOUGH / max(height, width)))


def enlarged(frame: Frame, times: int) -> Frame:
    """Every pixel as a square of `times` x `times`: the edges of a small grid stay sharp."""
    return frame if times == 1 else frame.repeat(times, axis=1).repeat(times, axis=0)
