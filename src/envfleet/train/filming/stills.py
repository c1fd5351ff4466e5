"""One picture that shows a whole episode."""

from __future__ import annotations

import os
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from envfleet._optional import require
from envfleet.rendering import Frame, check_frame
from envfleet.train.atomic_files import replacing

_EXPOSURES = 9
_STRIP = 4
_GAP = 4
_CHANGED = 32
_STANDS_STILL = 0.06
_FAINTEST = 0.35


def write_still(path: str | os.PathLike[str], frame: Frame) -> None:
    """Writes one frame, uint8[height, width, 3], as a png; a file of that name is replaced."""
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise ValueError(f"a still's path must end in .png, got {os.fspath(path)!r}.")
    check_frame("the frame", frame)
    image = require("matplotlib.image", "train")
    with replacing(target) as temporary:
        image.imsave(temporary, np.ascontiguousarray(frame), origin="upper")


@final
class Exposures:
    """Frames of an episode, evenly spaced from its first to its last, however long it turns out to be.

    It never holds more than 19 of them: when it is full every other one goes, and from then on only half as
    many are taken.
    """

    def __init__(self) -> None:
        self._kept: list[Frame] = []
        self._last: Frame | None = None
        self._stride = 1
        self._seen = 0

    def add(self, frame: Frame) -> None:
        """Look at the next frame, uint8[height, width, 3], and perhaps keep a copy."""
        if self._seen % self._stride == 0:
            self._kept.append(frame.copy())  # a renderer may draw the next one into the same array
            if len(self._kept) > 2 * _EXPOSURES:
                self._kept = self._kept[::2]
                self._stride *= 2
        self._last = frame
        self._seen += 1

    def frames(self) -> list[Frame]:
        """The kept frames, the last one seen among them."""
        if self._last is None or (self._seen - 1) % self._stride == 0:
            return list(self._kept)
        return [*self._kept, self._last.copy()]


def picture_of(frames: list[Frame]) -> Frame:
    """Show an episode in one picture.

    Where the camera stands still, what moves is shown at nine moments on one background, the later the
    clearer. Where it does not, four frames are put side by side.

    Args:
        frames: Of one episode, at least one, evenly spaced, uint8[height, width, 3].
    """
    chosen = np.stack(_spread(frames, _EXPOSURES))
    background = _background(chosen)
    moving = np.abs(chosen.astype(np.int16) - background).max(axis=-1) > _CHANGED
    if moving.mean() > _STANDS_STILL:
        return _side_by_side(_spread(frames, _STRIP))
    picture = background.astype(np.float32)
    for weight, frame, mask in zip(np.linspace(_FAINTEST, 1, len(chosen)), chosen, moving, strict=True):
        picture[mask] += np.float32(weight) * (frame[mask] - picture[mask])
    return np.asarray(picture.round(), np.uint8)


def _background(frames: npt.NDArray[np.uint8]) -> Frame:
    """What lies behind everything that moves: of the colours a pixel has had, the one commonest in all frames.

    Not the median over time: something that rests for most of the episode would become background, and the
    background shine through it.
    """
    coarse = (frames >> 4).astype(np.int16) @ np.array([256, 16, 1], np.int16)
    common = np.bincount(coarse.ravel(), minlength=4096)[coarse]
    best = common.argmax(axis=0)
    return np.asarray(np.take_along_axis(frames, best[None, :, :, None], axis=0)[0])


def _spread(frames: list[Frame], count: int) -> list[Frame]:
    """`count` of the frames, or all if there are fewer, evenly spaced with both ends."""
    return [frames[index] for index in np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int)]


def _side_by_side(frames: list[Frame]) -> Frame:
    height, width = frames[0].shape[:2]
    columns = 2 if width > height and len(frames) == _STRIP else len(frames)
    rows = len(frames) // columns
    shape = (rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3)
    picture = np.full(shape, 255, np.uint8)
    for index, frame in enumerate(frames):
        top, left = index // columns * (height + _GAP), index % columns * (width + _GAP)
        picture[top : top + height, left : left + width] = frame
    return picture
