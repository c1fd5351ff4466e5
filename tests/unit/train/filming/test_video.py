from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import matplotlib.image
import numpy as np
import numpy.typing as npt
import pytest
from films import read_video

from envfleet.train.filming.stills import write_still
from envfleet.train.filming.video import write_video

Frames = npt.NDArray[np.uint8]


def moving_square(count: int, height: int = 64, width: int = 96) -> Frames:
    frames = np.empty((count, height, width, 3), np.uint8)
    frames[:] = (20, 120, 220)
    for index, frame in enumerate(frames):
        frame[16:40, 4 + 4 * index : 28 + 4 * index] = (230, 60, 30)
    return frames


def test_a_video_shows_every_frame(tmp_path: Path) -> None:
    path, frames = tmp_path / "new" / "showcase.mp4", moving_square(12)
    assert write_video(path, frames, fps=25) == 12
    meta, shown = read_video(path)
    assert (meta["codec"], meta["fps"], meta["size"]) == ("h264", 25.0, (96, 64))
    assert meta["pix_fmt"].startswith("yuv420p")
    assert shown.shape == frames.shape
    error = np.abs(shown.astype(int) - frames)
    assert error.mean() < 3  # edges blur, areas keep their colour
    assert np.median(error) <= 2
    assert list(path.parent.iterdir()) == [path]


def test_a_gif_shows_every_frame_in_its_colours(tmp_path: Path) -> None:
    path, frames = tmp_path / "new" / "showcase.GIF", moving_square(12)
    assert write_video(path, frames, fps=12.5) == 12
    _, shown = read_video(path)
    np.testing.assert_array_equal(shown, frames)
    assert list(path.parent.iterdir()) == [path]


def test_a_gif_that_ffmpeg_could_not_make_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: "false")
    monkeypatch.setattr(imageio_ffmpeg, "count_frames_and_secs", lambda path: (3, 1.0))

    def encoder(path: str, *_: Any, **__: Any) -> Iterator[None]:
        while True:
            yield

    monkeypatch.setattr(imageio_ffmpeg, "write_frames", encoder)
    with pytest.raises(OSError, match="ffmpeg could not make the GIF: it ended with code 1; is the disk full"):
        write_video(tmp_path / "a.gif", moving_square(3), fps=30)
    assert list(tmp_path.iterdir()) == []


def test_a_browser_can_begin_before_all_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "showcase.mp4"
    write_video(path, moving_square(3), fps=25)
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")


@pytest.mark.parametrize("size", [(33, 47), (33, 48), (32, 47), (1, 1)])
def test_odd_sizes_grow_by_one_pixel_without_scaling(tmp_path: Path, size: tuple[int, int]) -> None:
    height, width = size
    frames = np.zeros((4, height, width, 3), np.uint8)
    frames[:, :, width // 2 :] = 255
    write_video(tmp_path / "odd.mp4", frames, fps=30)
    _, shown = read_video(tmp_path / "odd.mp4")
    assert shown.shape == (4, height + height % 2, width + width % 2, 3)
    error = np.abs(shown[:, :height, :width].astype(int) - frames)
    assert error.mean() < 5
    assert shown[:, -1, -1].min() > 240


def test_frames_may_come_from_a_generator_and_be_views(tmp_path: Path) -> None:
    frames = moving_square(5)[:, :, ::-1]
    assert write_video(tmp_path / "a.mp4", (frame for frame in frames), fps=10) == 5
    _, shown = read_video(tmp_path / "a.mp4")
    assert np.abs(shown.astype(int) - frames).mean() < 3


def test_writes_nothing_to_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    write_video(tmp_path / "odd.mp4", moving_square(3, 33, 65), fps=30)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def broken_renderer() -> Iterator[Frames]:
    yield from moving_square(3)
    raise RuntimeError("the renderer broke")


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], r'at least one frame, got none.*render_mode="rgb_array"'),
        ([None], r'frame 0 must be a NumPy array.*got NoneType.*render_mode="rgb_array"'),
        ([np.zeros((4, 4, 3))], r"frame 0 must be uint8\[height, width, 3\].*float64 of shape \(4, 4, 3\).*255"),
        ([np.zeros((4, 4), np.uint8)], r"of shape \(4, 4\)"),
        ([np.zeros((4, 4, 4), np.uint8)], r"of shape \(4, 4, 4\)"),
        ([np.zeros((0, 4, 3), np.uint8)], r"of shape \(0, 4, 3\)"),
        (
            [*moving_square(2), np.zeros((4, 4, 3), np.uint8)],
            r"frame 0 has the shape \(64, 96, 3\), frame 2 \(4, 4, 3\)",
        ),
        (broken_renderer(), "the renderer broke"),
    ],
)
def test_a_failure_leaves_the_earlier_video_alone(tmp_path: Path, frames: Any, message: str) -> None:
    path = tmp_path / "showcase.mp4"
    path.write_bytes(b"the earlier one")
    with pytest.raises((RuntimeError, TypeError, ValueError), match=message):
        write_video(path, frames, fps=30)
    assert path.read_bytes() == b"the earlier one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_video_that_ffmpeg_did_not_finish_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(path: str, *_: Any, **__: Any) -> Iterator[None]:
        Path(path).write_bytes(b"half a file")
        while True:
            yield

    monkeypatch.setattr(imageio_ffmpeg, "write_frames", full_disk)
    with pytest.raises(OSError, match="is the disk full"):
        write_video(tmp_path / "a.mp4", moving_square(3), fps=30)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "fps", "message"), [("a.avi", 30, "must end in .mp4 or .gif"), ("a.mp4", 0, "fps"), ("a.gif", 0, "fps")]
)
def test_refuses_other_formats_and_speeds(tmp_path: Path, name: str, fps: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_video(tmp_path / name, moving_square(1), fps)
    assert list(tmp_path.iterdir()) == []


def test_says_how_to_install_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "envfleet\[train\]"'):
        write_video(tmp_path / "a.mp4", moving_square(1), fps=30)


def test_a_still_is_the_frame(tmp_path: Path) -> None:
    (frame,) = moving_square(1, 33, 47)
    write_still(tmp_path / "still.png", frame[:, ::-1])
    shown = matplotlib.image.imread(tmp_path / "still.png")
    np.testing.assert_array_equal(np.round(shown[..., :3] * 255), frame[:, ::-1])


def test_a_still_is_a_png_of_a_picture(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.png"):
        write_still(tmp_path / "still.jpg", moving_square(1)[0])
    with pytest.raises(ValueError, match="the frame must be uint8"):
        write_still(tmp_path / "still.png", moving_square(1))
    assert list(tmp_path.iterdir()) == []
