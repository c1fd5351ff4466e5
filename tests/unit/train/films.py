"""What is in a film."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np


def read_video(path: Path) -> tuple[dict[str, Any], Any]:
    """What ffmpeg says about a film, and its frames."""
    with warnings.catch_warnings():
        # imageio-ffmpeg leaves the pipes of its reader to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        reader = imageio_ffmpeg.read_frames(path)
        meta = next(reader)
        width, height = meta["size"]
        frames = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]
        del reader
    return meta, np.array(frames)
