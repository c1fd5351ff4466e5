from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from films import read_video
from players import Coin, Player, trained_run, zeros

from envfleet import uniform
from envfleet.train.filming.showcase import showcase
from envfleet.train.filming.stage import Stage
from envfleet.train.filming.stills import Exposures, picture_of
from envfleet.train.judging.evaluation import evaluate
from envfleet.train.judging.play_setup import PlaySetup

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
image = pytest.importorskip("matplotlib.image")


def frames_and_seconds(path: Path) -> tuple[int, float]:
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(path))
    return frames, seconds


def test_a_video_and_a_still_of_the_episodes(tmp_path: Path) -> None:
    result = showcase(Player(), episodes=6, seed=0, path=tmp_path / "new" / "watch.mp4")
    assert (result.path, result.still) == (tmp_path / "new" / "watch.mp4", tmp_path / "new" / "watch.png")
    assert set(result.lengths) == {1, 40}
    frames, seconds = frames_and_seconds(result.path)
    ends = 6 * 20  # each is shown for a second
    assert frames == sum(result.lengths) + 6 + ends  # a step's result each, and what an episode began with
    assert seconds == pytest.approx(frames / 20, rel=0.05)
    still = image.imread(result.still)
    assert still.shape[:2] == (8 * 24, 8 * 60)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["watch.mp4", "watch.png"]


def test_the_episodes_are_the_first_ones_of_an_evaluation(tmp_path: Path) -> None:
    player = Player(short=2.0, long=5.0)
    shown = showcase(player, episodes=5, seed=9, path=tmp_path / "a.mp4")
    evaluated = evaluate(player, episodes=5, num_envs=5, seed=9)
    assert (shown.returns, shown.lengths) == (evaluated.returns, evaluated.lengths)
    randomize = {"long": uniform(1, 9), "short": uniform(1, 9)}
    shown = showcase(player, episodes=4, seed=9, path=tmp_path / "b.mp4", randomize=randomize)
    evaluated = evaluate(player, episodes=4, seed=9, randomize=randomize)
    assert (shown.returns, shown.lengths) == (evaluated.returns, evaluated.lengths)
    assert len(set(shown.returns)) == 4


def test_drawn_actions_follow_the_seed(tmp_path: Path) -> None:
    one, same, other = (
        showcase(Player(), episodes=4, seed=seed, path=tmp_path / "a.mp4", deterministic=False) for seed in (1, 1, 3)
    )
    assert one.returns == same.returns != other.returns


def test_the_still_shows_the_best_episode(tmp_path: Path) -> None:
    """The square's row tells a long episode from a short one."""
    for better, row, other_row in (("long", 12, 4), ("short", 4, 12)):
        player = Player(**{"short": 0.0, "long": 0.0, better: 3.0})
        still = image.imread(showcase(player, episodes=6, path=tmp_path / f"{better}.mp4").still)[..., :3]
        assert still[8 * row : 8 * row + 32].max() == 1.0
        assert still[8 * other_row : 8 * other_row + 32].max() < 0.2


def test_a_run_keeps_its_showcase_in_its_folder(tmp_path: Path) -> None:
    run = trained_run(tmp_path / "run")
    result = showcase(run, episodes=2)
    assert (result.path, result.still) == (run / "showcase.mp4", run / "showcase.png")
    assert result.path.is_file()
    assert result.still.is_file()
    elsewhere = showcase(str(run), episodes=2, path=tmp_path / "b.mp4")
    assert elsewhere.path == tmp_path / "b.mp4"
    assert elsewhere.returns == result.returns


def test_arguments_reach_the_environment(tmp_path: Path) -> None:
    seen: list[float] = []

    def policy(observations: Any) -> Any:
        assert observations.shape == (1, 3)
        seen.append(float(observations[0, 2]))
        return zeros(observations)

    player = Player(policy=policy, gravity=-5.0)
    showcase(player, episodes=2, path=tmp_path / "a.mp4")
    showcase(player, episodes=2, path=tmp_path / "a.mp4", env_kwargs={"gravity": -3.0})
    assert set(seen) == {-5.0, -3.0}


def test_dict_observations_come_as_a_batch_of_one(tmp_path: Path) -> None:
    def policy(observations: Any) -> Any:
        assert observations["room"].shape == (1,)
        assert observations["where"].shape == (1, 2)
        assert observations["where"].dtype == np.float32
        return np.full((1, 1), 0.5, np.float32)

    result = showcase(Player("players/Noted-v0", policy), episodes=2, path=tmp_path / "a.mp4")
    assert (result.returns, result.lengths) == ((1.5, 1.5), (3, 3))


def test_an_endless_episode_is_cut_off(tmp_path: Path) -> None:
    assert showcase(Player("players/Endless-v0"), episodes=1, path=tmp_path / "a.mp4", max_steps=7).lengths == (7,)


def test_the_environment_is_closed_whatever_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []
    monkeypatch.setattr(Coin, "close", lambda self: closed.append(self))
    showcase(Player(), episodes=2, path=tmp_path / "a.mp4")
    assert len(closed) == 1

    def failing(observations: Any) -> Any:
        raise ArithmeticError("out of ideas")

    with pytest.raises(ArithmeticError):
        showcase(Player(policy=failing), episodes=2, path=tmp_path / "b.mp4")
    assert len(closed) == 2
    assert [path.name for path in tmp_path.iterdir() if path.stem != "a"] == []


def test_an_environment_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r'players/Unpainted-v0 cannot be filmed: it does not offer render_mode="rgb_array"'
    ):
        showcase(Player("players/Unpainted-v0"), path=tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_ignores_the_render_mode_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Coin, "metadata", {"render_modes": ["human"]})
    with pytest.raises(ValueError, match="cannot be filmed"):
        showcase(Player(), path=tmp_path / "a.mp4")


def test_a_failing_renderer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def render(self: Any) -> Any:
        raise OSError("no screen")

    monkeypatch.setattr(Coin, "render", render)
    with pytest.raises(RuntimeError, match=r"players/Coin-v0 could not be drawn: OSError: no screen\."):
        showcase(Player(), path=tmp_path / "a.mp4")


def test_an_environments_own_refusal_is_not_covered_up(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="must be greater than -12"):
        showcase(Player(), path=tmp_path / "a.mp4", env_kwargs={"gravity": -12})


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'no folder to put its video in: give path="somewhere\.mp4"'):
        showcase(Player())
    with pytest.raises(ValueError, match=r"must end in \.mp4 or \.gif"):
        showcase(Player(), path=tmp_path / "a.avi")
    with pytest.raises(ValueError, match="episodes must be 1 or more"):
        showcase(Player(), path=tmp_path / "a.mp4", episodes=0)
    with pytest.raises(ValueError, match="seed must be 0 or more"):
        showcase(Player(), path=tmp_path / "a.mp4", seed=-1)
    player = Player()
    player.action_space = gym.spaces.Discrete(9)
    with pytest.raises(ValueError, match="it cannot play"):
        showcase(player, path=tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


# -- the film --------------------------------------------------------------------------------------------


def test_small_pictures_are_enlarged_and_the_caption_is_below_them(tmp_path: Path) -> None:
    bare = read_video(showcase(Player(), episodes=1, path=tmp_path / "a.mp4", caption=False).path)[1]
    assert bare.shape[1:] == (8 * 24, 8 * 60, 3)
    with_caption = read_video(showcase(Player(), episodes=1, path=tmp_path / "b.mp4").path)[1]
    assert with_caption.shape[1] > bare.shape[1]
    assert with_caption.shape[2] == bare.shape[2]
    pictures, captions = with_caption[:, : 8 * 24].astype(int), with_caption[:, 8 * 24 :].astype(int)
    assert np.abs(pictures - bare).mean() < 3  # nothing is written over them
    assert captions.max() > 200
    assert captions[:40, :, 300:].max() < 60  # the text is at the left
    changes = np.abs(np.diff(captions, axis=0)).max(axis=(1, 2, 3)) > 60
    assert changes[:40].all()  # another step in every frame
    assert not changes[41:].any()  # the end is held


def test_without_a_screen_sdl_is_told_not_to_look_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    seen: list[str | None] = []

    def policy(observations: Any) -> Any:
        seen.append(os.environ.get("SDL_VIDEODRIVER"))
        return zeros(observations)

    showcase(Player(policy=policy), episodes=1, path=tmp_path / "a.mp4")
    assert "SDL_VIDEODRIVER" not in os.environ
    monkeypatch.setenv("DISPLAY", ":7")
    showcase(Player(policy=policy), episodes=1, path=tmp_path / "a.mp4")
    assert seen == ["dummy"] * 40 + [None] * 40


def test_what_makes_many_steps_per_second_is_not_drawn_at_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    render = Coin.render
    monkeypatch.setattr(Coin, "render", lambda self: (drawn.append(self._step), render(self))[1])
    for fps, ending, shown_fps in ((20, "mp4", 20), (50, "mp4", 25), (80, "mp4", 80 / 3), (30, "gif", 15)):
        drawn.clear()
        monkeypatch.setattr(Coin, "metadata", {"render_modes": ["rgb_array"], "render_fps": fps})
        result = showcase(Player(), episodes=1, path=tmp_path / f"a.{ending}")
        assert result.lengths == (40,)
        assert drawn == sorted({*range(0, 40, round(fps / shown_fps)), 40})
        shown = len(drawn) + round(shown_fps)  # and a second at the end
        assert frames_and_seconds(result.path)[1] == pytest.approx(shown / shown_fps, abs=0.08)


def test_a_gif(tmp_path: Path) -> None:
    result = showcase(Player(), episodes=1, path=tmp_path / "watch.gif")
    assert result.path.read_bytes().startswith(b"GIF89a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["watch.gif", "watch.png"]
    meta, frames = read_video(result.path)
    assert meta["duration"] == pytest.approx((1 + 40 + 20) / 20, abs=0.1)
    np.testing.assert_array_equal(frames[3][100, :16], np.full((16, 3), 40))  # colours are kept to the last bit
    assert frames[3][14 * 8, 4 * 8].tolist() == [255, 255, 255]


def test_a_mosaic_shows_all_episodes_at_once_and_which_have_ended(tmp_path: Path) -> None:
    serial = showcase(Player(), episodes=6, seed=0, path=tmp_path / "a.mp4")
    result = showcase(Player(), episodes=6, seed=0, path=tmp_path / "b.mp4", mosaic=True, caption=False)
    assert (result.returns, result.lengths) == (serial.returns, serial.lengths)
    assert result.still.read_bytes() == serial.still.read_bytes()
    frames = read_video(result.path)[1]
    assert len(frames) == 1 + max(result.lengths) + 20
    height, width = frames.shape[1:3]
    rows = 3 if height > width / 2.5 else 2
    assert frames.shape[1] <= 1080
    tiles = [
        frames[:, top : top + height // rows - 4, left : left + width // (6 // rows) - 4]
        for top in np.linspace(0, height, rows, endpoint=False).astype(int)
        for left in np.linspace(0, width, 6 // rows, endpoint=False).astype(int)
    ]
    for length, tile in zip(result.lengths, tiles, strict=True):
        assert tile[0].max() > 240
        assert (tile[30].max() > 240) == (length == 40)  # those that have ended are darker


@pytest.mark.parametrize(
    ("path", "message"),
    [("file/a.mp4", "file: Not a directory"), ("folder.mp4", "there is a folder of that name")],
)
def test_a_path_that_cannot_be_written_is_refused_before_anything_is_played(
    tmp_path: Path, path: str, message: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.mp4").mkdir()

    def policy(observations: Any) -> Any:
        raise AssertionError("nothing must be played")

    with pytest.raises(OSError, match=f"the video cannot be written to .*{message}"):
        showcase(Player(policy=policy), path=tmp_path / path)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (None, r"players/Coin-v0's render\(\) returns must be a NumPy array .* got NoneType"),
        (np.zeros((4, 4)), r"players/Coin-v0's render\(\) returns must be uint8\[height, width, 3\].*Multiply by 255"),
    ],
)
def test_what_is_no_picture_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, picture: Any, message: str
) -> None:
    monkeypatch.setattr(Coin, "render", lambda self: picture)
    with pytest.raises((TypeError, ValueError), match=message):
        showcase(Player(), path=tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


def test_pictures_of_different_sizes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coin, "render", lambda self: np.zeros((24 + self._step // 5, 60, 3), np.uint8))
    with pytest.raises(ValueError, match=r"drew \(24, 60, 3\) at first and \(25, 60, 3\) in episode 0, step 5"):
        showcase(Player(), path=tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


def test_in_a_terminal_a_line_says_how_far_it_is_and_is_gone_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    showcase(Player(), episodes=2, path=tmp_path / "a.mp4")
    assert capsys.readouterr().out == ""  # not a terminal
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "24")
    showcase(Player(), episodes=2, path=tmp_path / "a.mp4")
    _, *lines = capsys.readouterr().out.split("\r\x1b[K")
    assert lines[0] == "filming episode 1 of 2:"  # no more than fits
    assert lines[-2:] == ["writing the film", ""]
    showcase(Player(), episodes=2, path=tmp_path / "a.mp4", progress=False)
    assert capsys.readouterr().out == ""


# -- stills -----------------------------------------------------------------------------------------------


def frame(left: int, ground: int = 0) -> Any:
    picture = np.full((40, 200, 3), ground, np.uint8)
    picture[10:20, left : left + 6] = 250
    return picture


@pytest.mark.parametrize("length", [1, 2, 5, 18, 19, 20, 37, 38, 100, 1234])
def test_exposures_are_few_evenly_spaced_and_have_both_ends(length: int) -> None:
    exposures, canvas = Exposures(), np.zeros((1, 1, 3), np.int64)
    for index in range(length):
        canvas[:] = index  # drawn into the same array, as some renderers do
        exposures.add(canvas)
    moments = [int(kept[0, 0, 0]) for kept in exposures.frames()]
    assert moments[0] == 0
    assert moments[-1] == length - 1
    assert min(length, 9) <= len(moments) <= 20
    gaps = np.diff(moments)
    assert len(set(gaps[:-1].tolist())) <= 1


def test_before_any_frame_there_are_none() -> None:
    assert Exposures().frames() == []


def test_what_moves_is_shown_at_nine_moments_the_later_the_clearer() -> None:
    picture = picture_of([frame(10 * index) for index in range(17)])
    assert picture.shape == (40, 200, 3)
    assert picture.dtype == np.uint8
    shades = [int(picture[15, 20 * index + 2, 0]) for index in range(9)]
    assert shades == sorted(shades)
    assert len(set(shades)) == 9
    assert shades[0] > 60
    assert shades[-1] == 250
    assert picture[30].max() == 0


def test_what_rests_in_the_end_is_not_taken_for_background() -> None:
    picture = picture_of([frame(0), frame(20), *[frame(50)] * 15])
    np.testing.assert_array_equal(picture[:, 40:], frame(50)[:, 40:])
    assert 0 < picture[15, 2, 0] < 250


def test_under_a_moving_camera_four_frames_are_put_side_by_side() -> None:
    frames = [frame(10 * index, ground=20 * index) for index in range(10)]
    picture = picture_of(frames)
    assert picture.shape == (84, 404, 3)
    np.testing.assert_array_equal(picture[:40, :200], frames[0])
    np.testing.assert_array_equal(picture[44:, 204:], frames[9])
    tall = picture_of([frame(10 * index, ground=20 * index)[:, :30] for index in range(10)])
    assert tall.shape == (40, 4 * 34 - 4, 3)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_short_episodes_have_a_still_too(count: int) -> None:
    same = picture_of([frame(10)] * count)
    np.testing.assert_array_equal(same, frame(10))
    moving = picture_of([frame(0, ground=100 * index) for index in range(count)])
    assert moving.dtype == np.uint8


@pytest.mark.parametrize(
    ("env_kwargs", "camera"), [({}, 0), ({"camera_id": -1}, -1), ({"default_camera_config": {"trackbodyid": 1}}, -1)]
)
def test_a_camera_follows_what_runs_away_unless_one_was_chosen(env_kwargs: dict[str, Any], camera: int) -> None:
    pytest.importorskip("mujoco")
    setup = PlaySetup("HalfCheetah-v5", env_kwargs, {}, None, (), {}, "native")
    with closing(Stage(setup, [{}], "rgb_array")) as stage:
        assert stage.env.unwrapped.mujoco_renderer.camera_id == camera  # type: ignore[attr-defined]
