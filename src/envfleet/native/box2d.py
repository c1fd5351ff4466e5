"""The environments on Box2D: their constructor arguments, and how Gymnasium's own is made to draw a native one.

Scenery follows from the random generator at the last reset, so one of Gymnasium's environments, reset with that
generator, has the same hills and clouds; then its bodies are moved to where the native ones are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from envfleet.vector.fused_env import AnyEnv
from envfleet.vector.runtime import generator_in, generator_state

_POSES, _RANDOM_STATE = "_poses", "_random_state_at_reset"
_SCENE = "_envfleet_scene"
_NUMBERS_A_POSE = 3


def lunar_lander(
    continuous: bool = False,  # noqa: ARG001  another kind
    gravity: float = -10.0,
    enable_wind: bool = False,
    wind_power: float = 15.0,
    turbulence_power: float = 1.5,
) -> dict[str, Any]:
    """The parameters in C++ of a lander."""
    return {
        "gravity": float(gravity),
        "enable_wind": bool(enable_wind),
        "wind_power": float(wind_power),
        "turbulence_power": float(turbulence_power),
    }


def bipedal_walker(hardcore: bool = False) -> dict[str, Any]:
    """The parameters in C++ of a walker."""
    return {"hardcore": bool(hardcore)}


class _SpacesOnly(gymnasium.Env[Any, Any]):
    """Shows what Gymnasium's environment would show, where Box2D's Python package is missing."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 50}  # noqa: RUF012  as in every environment

    def __init__(self, high: Sequence[float], low: Sequence[float], action_space: spaces.Space[Any]) -> None:
        self.observation_space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
        self.action_space = action_space


def lander_spaces(env_kwargs: Mapping[str, Any]) -> AnyEnv:
    """The spaces of a lander."""
    high = [2.5, 2.5, 10.0, 10.0, 2 * math.pi, 10.0, 1.0, 1.0]
    low = [*(-bound for bound in high[:6]), -0.0, -0.0]
    continuous = spaces.Box(-1.0, 1.0, (2,), np.float32)
    return _SpacesOnly(high, low, continuous if env_kwargs.get("continuous") else spaces.Discrete(4))


def walker_spaces(env_kwargs: Mapping[str, Any]) -> AnyEnv:  # noqa: ARG001  they are always the same
    """The spaces of a walker."""
    hull, leg, lidar = [math.pi, 5.0, 5.0, 5.0], [math.pi, 5.0, math.pi, 5.0], [1.0] * 10
    high = [*hull, *leg, 5.0, *leg, 5.0, *lidar]
    low = [-bound for bound in high]
    low[8] = low[13] = -0.0
    return _SpacesOnly(high, low, spaces.Box(-1.0, 1.0, (4,), np.float32))


def pose_lander(env: Any, attributes: Mapping[str, Any]) -> None:
    """Puts Gymnasium's lander where the native one is. The engines' sparks are left out."""
    _reset_like(env, attributes, ("gravity", "enable_wind"))
    _move([env.lander, *env.legs], attributes[_POSES])


def pose_walker(env: Any, attributes: Mapping[str, Any]) -> None:
    """Puts Gymnasium's walker where the native one is, its lidar included."""
    _reset_like(env, attributes, ("hardcore",))
    bodies = [env.hull, *env.legs]
    poses, ends = np.split(np.asarray(attributes[_POSES]), [_NUMBERS_A_POSE * len(bodies)])
    _move(bodies, poses)
    for ray, end in zip(env.lidar, ends.reshape(-1, 2).tolist(), strict=True):
        ray.p1, ray.p2 = tuple(env.hull.position), tuple(end)
    env.scroll = env.hull.position.x - 600 / 30 / 5


def _reset_like(env: Any, attributes: Mapping[str, Any], parameters: Sequence[str]) -> None:
    """Resets Gymnasium's environment as the native one last was, unless it shows that very episode already."""
    if not len(attributes[_POSES]):
        raise ResetNeeded("There is nothing to render before the first reset.")
    scene = (*attributes[_RANDOM_STATE], *(attributes[name] for name in parameters))
    if getattr(env, _SCENE, None) == scene:
        return
    for name in parameters:
        setattr(env, name, attributes[name])
    env.np_random = _generator(attributes[_RANDOM_STATE])
    env.reset()
    setattr(env, _SCENE, scene)


def _generator(halves: Sequence[int]) -> np.random.Generator:
    state_high, state_low, increment_high, increment_low, has_half, half = (number % 2**64 for number in halves)
    state, increment = state_high << 64 | state_low, increment_high << 64 | increment_low
    return generator_in(generator_state(state, increment, has_half, half))


def _move(bodies: Sequence[Any], poses: Any) -> None:
    for body, (x, y, angle) in zip(bodies, np.reshape(poses, (-1, _NUMBERS_A_POSE)).tolist(), strict=True):
        body.transform = ((x, y), angle)
