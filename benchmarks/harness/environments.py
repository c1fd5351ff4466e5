"""Environments made for measuring: they cost exactly what their name says."""

from __future__ import annotations

import runpy
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete

BUSY = "Busy1ms-v0"
BUSY_EXPONENTIAL = "BusyExponential-v0"
DICT_IMAGE = "DictImage-v0"
MEGABYTE = "Megabyte-v0"
POND = "Pond-v0"

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_environment.py"

EPISODE = 200
"""Steps an episode of the two that only make observations."""

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class BusyEnv(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """Computes 1 ms per step and does nothing else; its episodes never end.

    Args:
        exponential: Draw the time of each step from an exponential distribution with that mean.
    """

    observation_space = Box(-1.0, 1.0, (4,), np.float32)
    action_space = Discrete(2)
    cpu_seconds = 1e-3

    def __init__(self, *, exponential: bool = False) -> None:
        self.exponential = exponential

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Return a zero observation."""
        super().reset(seed=seed, options=options)
        return np.zeros(4, np.float32), {}

    def step(self, action: np.int64) -> Step:  # noqa: ARG002
        """Compute until this thread has used so much processor time.

        Wall-clock time would not do: two environments that share one core would both call themselves done
        after 1 ms in which each had computed for half of it.
        """
        end = time.thread_time() + self._wanted()
        while time.thread_time() < end:
            pass
        return np.zeros(4, np.float32), 0.0, False, False, {}

    def _wanted(self) -> float:
        return self.np_random.exponential(self.cpu_seconds) if self.exponential else self.cpu_seconds


class DictImageEnv(gymnasium.Env[Any, np.int64]):
    """A camera of 84 x 84 x 3 bytes, eight joints and a contact flag, at next to no cost."""

    observation_space = Dict(
        {
            "image": Box(0, 255, (84, 84, 3), np.uint8),
            "joints": Box(-1.0, 1.0, (8,), np.float32),
            "contact": Box(0, 1, (1,), np.int8),
        }
    )
    action_space = Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._age = 0
        self._image = np.zeros((84, 84, 3), np.uint8)
        return self._observation(), {}

    def step(self, action: np.int64) -> Step:  # noqa: ARG002
        """One pixel, one joint and the flag change."""
        self._age += 1
        self._image[self._age % 64, 0, 0] = self._age
        return self._observation(), 1.0, False, self._age == EPISODE, {}

    def _observation(self) -> dict[str, npt.NDArray[Any]]:
        joints = np.zeros(8, np.float32)
        joints[0] = self._age / EPISODE
        return {"image": self._image, "joints": joints, "contact": np.array([self._age % 2], np.int8)}


class MegabyteEnv(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """A megabyte to move a step, and nothing to compute."""

    observation_space = Box(0, 255, (1024, 1024), np.uint8)
    action_space = Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._age = 0
        self._observation = np.zeros((1024, 1024), np.uint8)
        return self._observation, {}

    def step(self, action: np.int64) -> Step:  # noqa: ARG002
        """One byte changes."""
        self._age += 1
        self._observation[self._age, 0] = 1
        return self._observation, 1.0, False, self._age == EPISODE, {}


def make_pong() -> gymnasium.Env[Any, Any]:
    """Pong as everyone trains on it: every fourth frame, 84 x 84 in grey, the last four of them stacked."""
    try:
        import ale_py
    except ImportError:
        raise ImportError("Pong needs: pip install ale-py opencv-python-headless") from None
    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    preprocessed = gymnasium.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4, screen_size=84)
    return gymnasium.wrappers.FrameStackObservation(preprocessed, 4)


def register_pond() -> None:
    """The example of an environment of one's own, which needs envfleet and numba to be made, but not to be run."""
    pond = runpy.run_path(str(EXAMPLE))["Pond"]
    gymnasium.register(POND, entry_point=pond, max_episode_steps=pond.description.max_episode_steps)


gymnasium.register(BUSY, entry_point="harness.environments:BusyEnv")
gymnasium.register(BUSY_EXPONENTIAL, entry_point="harness.environments:BusyEnv", kwargs={"exponential": True})
gymnasium.register(DICT_IMAGE, entry_point="harness.environments:DictImageEnv")
gymnasium.register(MEGABYTE, entry_point="harness.environments:MegabyteEnv")
