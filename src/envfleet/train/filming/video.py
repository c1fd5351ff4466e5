"""Frames as a film: an mp4 that browsers play, or a GIF."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from envfleet._optional import require
from envfleet.rendering import Frame, check_frame
from envfleet.train.atomic_files import replacing

FORMATS = (".mp4", ".gif")
"""What a film's path may end in."""

_FOR_BROWSERS = (
    # A third less work than with x264's own preset, and smaller files; at 20, thin lines and text stay clean.
    *("-preset", "veryfast", "-crf", "20"),
    # The index goes in front, so that playing can begin before all is loaded.
    *("-movflags", "+faststart"),
    # Browsers take unmarked videos for BT.709, ffmpeg makes BT.601 unless told: colours would shift.
    *("-vf", "scale=out_color_matrix=bt709:out_range=tv"),
    *("-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"),
)
_LOSSLESS = ("-preset", "ultrafast", "-qp", "0")


def check_film_path(path: Path) -> None:
    """Refuses a path that does not end in .mp4 or .gif."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"a video's path must end in .mp4 or .gif, got {os.fspath(path)!r}.")


def write_video(path: str | os.PathLike[str], frames: Iterable[Frame], fps: float) -> int:
    """Writes frames as an H.264 mp4 that browsers play, or as a GIF; returns how many.

    The file appears when it is complete. Frames are taken one at a time, so they may come from a generator, which may
    draw all of them into the same array.

    Args:
        path: Ends in .mp4 or .gif; a file of that name is replaced.
        frames: Each uint8[height, width, 3], red, green, blue, all of one size. Nothing is scaled; an odd height or
            width, which H.264 cannot have, grows by repeating the last row or column.
        fps: Frames per second, such as an environment's `metadata["render_fps"]`.
    """
    target = Path(path)
    check_film_path(target)
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
    shape, all_frames = first.shape, chain([first], checked)
    with replacing(target) as temporary:
        if target.suffix.lower() == ".mp4":
            return _encode(ffmpeg, temporary, shape, all_frames, fps, "libx264", "yuv420p", _FOR_BROWSERS)
        # The best 256 colours are known only when all frames have been seen, and those do not fit in memory.
        lossless = temporary.with_name("lossless.mkv")
        count = _encode(ffmpeg, lossless, shape, all_frames, fps, "libx264rgb", "rgb24", _LOSSLESS)
        _convert_to_gif(ffmpeg.get_ffmpeg_exe(), lossless, temporary)
        return count


def _encode(
    ffmpeg: Any,
    path: Path,
    shape: Sequence[int],
    frames: Iterable[Frame],
    fps: float,
    codec: str,
    pixels: str,
    options: Sequence[str],
) -> int:
    height, width = shape[:2]
    encoder = ffmpeg.write_frames(
        str(path),
        (width + width % 2, height + height % 2),
        fps=float(fps),
        codec=codec,
        pix_fmt_out=pixels,
        quality=None,
        macro_block_size=2,
        ffmpeg_log_level="error",
        output_params=list(options),
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


def _convert_to_gif(program: str, film: Path, gif: Path) -> None:
    """Write the film as a GIF, with the colours that suit the whole of it."""
    palette = film.with_name("palette.png")
    use = "[0:v][1:v]paletteuse=diff_mode=rectangle"  # only what has changed in each frame: the file stays small
    _run_ffmpeg(program, ["-i", str(film), "-vf", "palettegen", "-update", "1", str(palette)])
    _run_ffmpeg(program, ["-i", str(film), "-i", str(palette), "-lavfi", use, "-loop", "0", str(gif)])


def _run_ffmpeg(program: str, arguments: Sequence[str]) -> None:
    command = [program, "-y", "-v", "error", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        raise OSError(f"ffmpeg could not make the GIF: {said}; is the disk full?")


def _checked(frames: Iterable[Frame]) -> Iterator[Frame]:
    shape = None
    for index, frame in enumerate(frames):
        check_frame(f"frame {index}", frame)
        shape = shape or frame.shape
        if frame.shape != shape:
            raise ValueError(
                f"all frames of a video must have one size: frame 0 has the shape {shape}, frame {index} {frame.shape}."
            )
        yield frame
