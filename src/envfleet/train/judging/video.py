"""Moving and still pictures of an agent at work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

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
