"""The constructor arguments of Gymnasium's MuJoCo environments, as parameters of the compiled ones."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium.error import DependencyNotInstalled

from envfleet.native.parameters import Parameters, UnsupportedError

_Converter: TypeAlias = Callable[[str, Any], Parameters]

_LARGEST_INTEGER = 2**53
"""Beyond it floats leave integers out."""


def _number(name: str, value: Any) -> Parameters:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UnsupportedError(f"{name}={value!r}, which is no Python number")
    return {f"_{name}": float(value)}


def _control_weight(name: str, value: Any) -> Parameters:
    # Actions are single precision. So is what a Python number makes of them, but not what a NumPy number does.
    if isinstance(value, np.generic):
        raise UnsupportedError(
            f"{name}={value!r}, with which Gymnasium computes in another precision than with a float"
        )
    return _number(name, value)


def _healthy_reward(name: str, value: Any) -> Parameters:
    # It shows in the infos, where an integer stays one.
    parameters = _number(name, value)
    if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
        raise UnsupportedError(f"{name}={value!r}, an integer that no float can hold")
    return {**parameters, f"_{name}": value}


def _noise(name: str, value: Any) -> Parameters:
    parameters = _number(name, value)
    if not 0 <= value < float("inf"):
        raise UnsupportedError(f"{name}={value!r}, from which no noise can be drawn")
    return parameters


def _range(name: str, value: Any) -> Parameters:
    low, high = value
    return {f"_{name}": [float(low), float(high)]}


def _flag(name: str, value: Any) -> Parameters:
    if not isinstance(value, bool):
        raise UnsupportedError(f"{name}={value!r}, which is no bool")
    return {f"_{name}": value}


def _frame_skip(name: str, value: Any) -> Parameters:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise UnsupportedError(f"{name}={value!r}, which is no number of frames")
    return {name: int(value)}


def _body(name: str, value: Any) -> Parameters:
    return {f"_{name}": _body_named(value)}


def _body_named(body: int | str) -> Callable[[Any], int]:
    """The number of a body, once there is a model."""
    return lambda model: int(model.body(body).id)


def _left_to_gymnasium(name: str, value: Any) -> Parameters:  # noqa: ARG001
    return {}


_DRAWING = ("default_camera_config", "width", "height", "camera_id", "camera_name", "max_geom", "visual_options")
_OBSERVED = (
    "exclude_current_positions_from_observation",
    "include_cinert_in_observation",
    "include_cvel_in_observation",
    "include_qfrc_actuator_in_observation",
    "include_cfrc_ext_in_observation",
)

SHAPING = frozenset(("xml_file", *_DRAWING, *_OBSERVED))
"""Arguments on which the model, the spaces or the pictures depend."""

_CONVERTERS: dict[str, _Converter] = {
    "frame_skip": _frame_skip,
    "main_body": _body,
    "healthy_reward": _healthy_reward,
    "reset_noise_scale": _noise,
    "terminate_when_unhealthy": _flag,
    **dict.fromkeys(("xml_file", *_DRAWING), _left_to_gymnasium),
    **dict.fromkeys(_OBSERVED, _flag),
    **dict.fromkeys(("ctrl_cost_weight", "reward_control_weight"), _control_weight),
    **dict.fromkeys(
        (
            "forward_reward_weight",
            "contact_cost_weight",
            "impact_cost_weight",
            "uph_cost_weight",
            "reward_near_weight",
            "reward_dist_weight",
        ),
        _number,
    ),
    **dict.fromkeys(
        (
            "contact_cost_range",
            "contact_force_range",
            "healthy_angle_range",
            "healthy_state_range",
            "healthy_z_range",
            "impact_cost_range",
        ),
        _range,
    ),
}


_LOOKED_AT_LATER: dict[str, _Converter] = {
    "_ctrl_cost_weight": _control_weight,
    "_reward_control_weight": _control_weight,
    "_healthy_reward": _healthy_reward,
    "_reset_noise_scale": _noise,
}


def check_attribute(name: str, value: Any) -> None:
    """Refuses values with which Gymnasium would compute in another precision, or could not reset."""
    converter = _LOOKED_AT_LATER.get(name)
    plain = value.item() if isinstance(value, np.int64) and converter is not _control_weight else value
    if converter is None or not isinstance(plain, np.generic | int | float):
        return  # the environment itself says what it expects
    try:
        converter(name.removeprefix("_"), plain)
    except UnsupportedError as error:
        raise UnsupportedError(f"Native environments do not support {error}.") from None


def _arguments(*own: str, **of_the_model: Callable[[Any], Any]) -> Callable[..., Parameters]:
    """From constructor arguments to parameters.

    Args:
        own: The environment's arguments besides those that all of them take. What is not given has Gymnasium's default.
        of_the_model: Further parameters, as functions of the model.
    """
    names = ("xml_file", "frame_skip", *own, *_DRAWING)

    def parameters(**env_kwargs: Any) -> Parameters:
        if importlib.util.find_spec("mujoco") is None:
            raise DependencyNotInstalled('This environment needs MuJoCo: pip install "gymnasium[mujoco]"')
        found: Parameters = dict(of_the_model)
        for name, value in env_kwargs.items():
            found.update(_CONVERTERS[name](name, value))
        return found

    signature = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
    parameters.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    return parameters


_RUNNING = ("forward_reward_weight", "ctrl_cost_weight", "reset_noise_scale", _OBSERVED[0])
_STANDING = ("healthy_reward", "terminate_when_unhealthy", "healthy_z_range")

ARGUMENTS: dict[str, Callable[..., Parameters]] = {
    "ant_v5:AntEnv": _arguments(
        *_RUNNING, *_STANDING, "main_body", "contact_cost_weight", "contact_force_range", _OBSERVED[-1]
    ),
    "half_cheetah_v5:HalfCheetahEnv": _arguments(*_RUNNING),
    "hopper_v5:HopperEnv": _arguments(*_RUNNING, *_STANDING, "healthy_angle_range", "healthy_state_range"),
    "humanoid_v5:HumanoidEnv": _arguments(
        *_RUNNING,
        *_STANDING,
        "contact_cost_weight",
        "contact_cost_range",
        *_OBSERVED[1:],
        body_mass=lambda model: model.body_mass.tolist(),
    ),
    "humanoidstandup_v5:HumanoidStandupEnv": _arguments(
        "uph_cost_weight",
        "ctrl_cost_weight",
        "impact_cost_weight",
        "impact_cost_range",
        "reset_noise_scale",
        *_OBSERVED,
    ),
    "inverted_double_pendulum_v5:InvertedDoublePendulumEnv": _arguments("healthy_reward", "reset_noise_scale"),
    "inverted_pendulum_v5:InvertedPendulumEnv": _arguments("reset_noise_scale"),
    "pusher_v5:PusherEnv": _arguments(
        "reward_near_weight",
        "reward_dist_weight",
        "reward_control_weight",
        tips_arm=_body_named("tips_arm"),
        object=_body_named("object"),
        goal=_body_named("goal"),
    ),
    "reacher_v5:ReacherEnv": _arguments(
        "reward_dist_weight",
        "reward_control_weight",
        fingertip=_body_named("fingertip"),
        target=_body_named("target"),
    ),
    "swimmer_v5:SwimmerEnv": _arguments(*_RUNNING),
    "walker2d_v5:Walker2dEnv": _arguments(*_RUNNING, *_STANDING, "healthy_angle_range"),
}
"""By module and name of Gymnasium's class."""
