"""Environments of MiniGrid, highway-env and ALE in fleets, and Gymnasium's rendering of fleets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import highway_env
import minigrid
import numpy as np
import pytest
from guests import START_METHODS, check_guest

from envfleet import make_vec, mosaic

for library in (ale_py, highway_env, minigrid):
    gymnasium.register_envs(library)

GUESTS = (
    "MiniGrid-DoorKey-5x5-v0",
    "BabyAI-GoToRedBall-v0",
    "highway-fast-v0",
    "parking-v0",
    "ALE/Pong-v5",
)

os.environ["SDL_VIDEODRIVER"] = "dummy"

pytestmark = pytest.mark.filterwarnings("default")  # those of the guests are no business of ours


@pytest.mark.parametrize("context", START_METHODS)
@pytest.mark.parametrize("env_id", GUESTS)
def test_a_guest_does_in_workers_what_it_does_here(env_id: str, context: str) -> None:
    check_guest(env_id, context, unseeded=("action",))  # highway-env's reset draws one that it does not take


# -- Gymnasium's rendering -----------------------------------------------------------------------------------

DRAWN = [
    ("CartPole-v1", "sync"),
    ("CartPole-v1", "process"),
    ("CartPole-v1", "native"),
    ("CartPole-v1", "ray"),
    ("LunarLander-v3", "native"),
    ("FrozenLake-v1", "native"),
    ("ALE/Pong-v5", "process"),
    ("MiniGrid-Empty-5x5-v0", "process"),
]


def drawn(env_id: str, backend: str) -> Any:
    """A fleet that draws."""
    return make_vec(env_id, 3, backend, render_mode="rgb_array")


@pytest.mark.parametrize(("env_id", "backend"), DRAWN)
def test_a_fleet_is_filmed_by_gymnasium(env_id: str, backend: str, tmp_path: Path) -> None:
    from gymnasium.wrappers.vector import RecordVideo

    envs: Any = RecordVideo(drawn(env_id, backend), str(tmp_path), step_trigger=lambda step: step == 0, video_length=8)
    envs.reset(seed=1)
    for _ in range(10):
        envs.step(envs.action_space.sample())
    one = envs.unwrapped.render()[0]
    envs.close()
    (film,) = tmp_path.glob("*.mp4")
    assert film.stat().st_size > 1000
    assert film_size(film) >= one.shape[0] * one.shape[1]


def film_size(film: Path) -> int:
    """How many pixels a picture of a film has."""
    import cv2

    capture = cv2.VideoCapture(str(film))
    try:
        return int(capture.get(cv2.CAP_PROP_FRAME_WIDTH) * capture.get(cv2.CAP_PROP_FRAME_HEIGHT))
    finally:
        capture.release()


@pytest.mark.parametrize(("env_id", "backend"), DRAWN)
def test_a_fleet_is_shown_in_gymnasiums_window(env_id: str, backend: str) -> None:
    from gymnasium.wrappers.vector import HumanRendering

    inner = drawn(env_id, backend)
    envs: Any = HumanRendering(inner)
    envs.metadata["render_fps"] = 1000  # or it would wait between frames
    envs.reset(seed=1)
    for _ in range(3):
        envs.step(envs.action_space.sample())
        frames = inner.render()
        assert len(frames) == 3
        assert mosaic(frames).shape[1] > 1.9 * frames[0].shape[1]
    shown = np.asarray(__import__("pygame").surfarray.array3d(envs.window))
    assert shown.any()
    envs.close()


def test_why_atari_is_drawn_elsewhere() -> None:
    with make_vec("ALE/Pong-v5", 2, render_mode="rgb_array") as envs:
        assert envs.plan.startswith(("sync", "process"))
        envs.reset(seed=0)
        assert mosaic(envs.render()).shape[2] == 3
