"""An agent to watch: a film of some episodes, and a still."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envfleet._names import explains_names
from envfleet.randomize import Distribution, draw_parameters
from envfleet.train.agent import Agent
from envfleet.train.filming.camera import Camera
from envfleet.train.filming.stage import Stage
from envfleet.train.filming.stills import write_still
from envfleet.train.filming.video import check_film_path, write_video
from envfleet.train.folders.trust import AllowImport
from envfleet.train.judging.inline import film_html
from envfleet.train.judging.play_setup import (
    PlaySetup,
    as_agent,
    check_fits,
    check_integer,
    evaluation_seed,
    no_screen_needed,
    one_torch_thread,
    seeded,
)
from envfleet.train.running.progress_line import ProgressLine
from envfleet.train.running.reporting import score

SHOWCASE_FILE = "showcase.mp4"

_LEAST_FPS = {".mp4": 25.0, ".gif": 12.5}
"""Frames per second that look smooth. Of environments with more, only every second or third frame is drawn."""

_ROOM = {(".mp4", False): (math.inf, math.inf), (".mp4", True): (1920, 1080)}
"""Width and height of a film, by its ending and whether it is a mosaic."""

_ROOM_OF_GIF = (720, 720)
"""A GIF of more pixels is too large to send."""


@dataclass(frozen=True)
class Showcase:
    """What was played and where to watch it. In a notebook it is shown as the film itself.

    Attributes:
        path: the video.
        still: a picture of the best episode.
        returns: the sum of rewards of each episode.
        lengths: the steps of each episode.
    """

    path: Path
    still: Path
    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    def _repr_html_(self) -> str:
        returns = ", ".join(map(score, self.returns))
        return film_html(self.path, self.still, f"{self.path}: returns {returns}")


@explains_names
def showcase(
    agent_or_run: Agent | str | os.PathLike[str],
    *,
    episodes: int = 3,
    seed: int = 0,
    path: str | os.PathLike[str] | None = None,
    mosaic: bool = False,
    caption: bool = True,
    env_kwargs: Mapping[str, Any] | None = None,
    randomize: Mapping[str, Distribution] | None = None,
    deterministic: bool = True,
    max_steps: int | None = None,
    progress: bool = True,
    allow_import: AllowImport = False,
) -> Showcase:
    """Play episodes with an agent and film them.

    With the seed of an evaluation, the episodes are the first ones of its environments. Pictures of less than 480
    pixels are enlarged. The film has the environment's speed, at 25 frames per second or little more (a GIF: 12.5).

    Args:
        agent_or_run: An agent, or the folder of a run.
        episodes: How many.
        seed: Zero or more; as for `evaluate`.
        path: The video, ending in .mp4 or .gif; the still lies beside it as .png. By default showcase.mp4 in the run.
        mosaic: Show all episodes side by side, not one after another.
        caption: Write the episode, the step and the return so far below the picture.
        env_kwargs: Constructor arguments of the environment, over those of the agent's training.
        randomize: Parameters drawn anew for every episode.
        deterministic: Take the likeliest action instead of drawing one.
        max_steps: Cut episodes off after so many steps; by default as for `evaluate`.
        progress: Show in a terminal or a notebook how far it is.
        allow_import: For the folder of a run that was not trained here by you, as for `load_agent`.
    """
    check_integer("episodes", episodes, 1)
    check_integer("seed", seed, 0)
    target = _target(agent_or_run, path)
    agent = as_agent(agent_or_run, allow_import)
    setup = PlaySetup.of(agent, env_kwargs, randomize, max_steps)
    first_seed = evaluation_seed(seed)
    drawn = draw_parameters(setup.randomize, episodes, first_seed)
    parameters = [drawn.row(index) for index in range(episodes)]
    at_once = episodes if mosaic else 1
    with (
        no_screen_needed(),
        closing(Stage(setup, parameters, "rgb_array", at_once)) as stage,
        seeded(agent, first_seed),
        one_torch_thread(),
        ProgressLine(progress) as line,
    ):
        check_fits(agent, stage.env.observation_space, stage.env.action_space)
        kind = target.suffix.lower()
        room = _ROOM.get((kind, mosaic), _ROOM_OF_GIF)
        camera = Camera(stage, caption, room, _LEAST_FPS[kind], line)
        write_video(target, camera.film(agent, first_seed, deterministic), camera.fps)
        still = target.with_suffix(".png")
        write_still(still, camera.still())
    played = stage.finished
    return Showcase(target, still, tuple(one.score for one in played), tuple(one.length for one in played))


def _target(agent_or_run: object, path: str | os.PathLike[str] | None) -> Path:
    if path is not None:
        target = Path(path)
    elif isinstance(agent_or_run, (str, os.PathLike)):
        return Path(agent_or_run) / SHOWCASE_FILE
    else:
        raise ValueError('an agent has no folder to put its video in: give path="somewhere.mp4".')
    check_film_path(target)
    _check_writable(target)
    return target


def _check_writable(target: Path) -> None:
    """Refuse a path that cannot be written, now and not after all episodes have been played."""
    if target.is_dir():
        raise IsADirectoryError(f"the video cannot be written to {target}: there is a folder of that name.")
    folder = next(parent for parent in target.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".envfleet-", dir=folder):
            pass
    except OSError as error:
        raise OSError(f"the video cannot be written to {target}: {folder}: {error.strerror}.") from error
