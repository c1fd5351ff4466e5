"""Moving and still pictures of an agent: a video of every frame, and one picture that shows a whole episode."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet._optional import require
from envfleet.train.atomic_files import replacing

Frame: TypeAlias = npt.NDArray[np.uint8]
"""A picture as `render()` gives it with render_mode="rgb_array": uint8[height, width, 3]."""

_QUALITY = 7
"""imageio's scale from 1 to 10; at 7 the thin lines and text of Gymnasium's renderings stay clean."""

_FOR_BROWSERS = [
    # The index goes in front, so that playing can begin before all is loaded.
    *("-movflags", "+faststart"),
    # Browsers take unmarked videos for BT.709, ffmpeg makes BT.601 unless told: colours would shift.
    *("-vf", "scale=out_color_matrix=bt709:out_range=tv"),
    *("-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"),
]

_EXPOSURES = 9
_STRIP = 4
_GAP = 4
_CHANGED = 32
_STANDS_STILL = 0.06
_FAINTEST = 0.35


def write_video(path: str | os.PathLike[str], frames: Iterable[Frame], fps: int) -> int:
    """Writes frames as an H.264 mp4 that browsers play; returns how many.

    The file appears when it is complete. Frames are taken one at a time, so they may come from a generator.

    Args:
        path: Ends in .mp4; a file of that name is replaced.
        frames: Each uint8[height, width, 3], red, green, blue, all of one size. Nothing is scaled; an odd height
            or width, which H.264 cannot have, grows by repeating the last row or column.
        fps: Frames a second, such as an environment's `metadata["render_fps"]`.
    """
    target = Path(path)
    if target.suffix.lower() != ".mp4":
        raise ValueError(f"a video's path must end in .mp4, got {os.fspath(path)!r}.")
    if not fps > 0:
        raise ValueError(f"fps must be more than 0, got {fps!r}.")
    ffmpeg = require("imageio_ffmpeg", "train")
    checked = _checked(frames)
    first = next(checked, None)
    if first is None:
        raise ValueError(
            "a video needs at least one frame, got none; does the environment render? Make it with "
            'render_mode="rgb_array".'
        )
    with replacing(target) as temporary:
        return _encode(ffmpeg, temporary, first, chain([first], checked), fps)


def write_still(path: str | os.PathLike[str], frame: Frame) -> None:
    """Writes one frame, uint8[height, width, 3], as a png; a file of that name is replaced."""
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise ValueError(f"a still's path must end in .png, got {os.fspath(path)!r}.")
    _check("the frame", frame)
    image = require("matplotlib.image", "train")
    with replacing(target) as temporary:
        image.imsave(temporary, np.ascontiguousarray(frame), origin="upper")


def _encode(ffmpeg: Any, path: Path, first: Frame, frames: Iterable[Frame], fps: int) -> int:
    height, width = first.shape[:2]
    encoder = ffmpeg.write_frames(
        str(path),
        (width + width % 2, height + height % 2),
        fps=float(fps),
        codec="libx264",
        quality=_QUALITY,
        macro_block_size=2,
        ffmpeg_log_level="error",
        output_params=_FOR_BROWSERS,
    )
    count = 0
    try:
        encoder.send(None)
        for frame in frames:
            encoder.send(_even(frame))
            count += 1
    finally:
        encoder.close()
    _check_video(ffmpeg, path, count)
    return count


def _even(frame: Frame) -> Frame:
    height, width = frame.shape[:2]
    if height % 2 or width % 2:
        frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(frame)


def _check_video(ffmpeg: Any, path: Path, count: int) -> None:
    # ffmpeg's exit code is out of reach, and on a full disk it ends without a word to its caller.
    try:
        readable, _ = ffmpeg.count_frames_and_secs(str(path))
    except (OSError, RuntimeError) as error:
        raise OSError("ffmpeg wrote a video that cannot be read; is the disk full?") from error
    if readable != count:
        raise OSError(f"ffmpeg wrote {readable} of {count} frames; is the disk full?")


def _checked(frames: Iterable[Frame]) -> Iterator[Frame]:
    shape = None
    for index, frame in enumerate(frames):
        _check(f"frame {index}", frame)
        shape = shape or frame.shape
        if frame.shape != shape:
            raise ValueError(
                f"all frames of a video must have one size: frame 0 has the shape {shape}, frame {index} {frame.shape}."
            )
        yield frame


def _check(what: str, frame: Any) -> None:
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
