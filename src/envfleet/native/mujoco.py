"""The environments on MuJoCo: their constructor arguments as parameters of the compiled ones, then the simulator.

MuJoCo's functions come from the Python package, one model is for all environments of a fleet, and every environment
has a simulation of its own.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from gymnasium.error import DependencyNotInstalled

from envfleet import _native
from envfleet.errors import UnsupportedError
from envfleet.native.own.environment import Parameters
from envfleet.vector.arguments import is_integer

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
    if not is_integer(value) or value < 1:
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

_FUNCTIONS = (
    "mj_step",
    "mj_resetData",
    "mj_forward",
    "mj_rnePostConstraint",
    "mj_stateSize",
    "mj_getState",
    "mj_setState",
    "mju_user_error",  # no function but the place where the address of one is kept
)


@final
class Simulations:
    """The simulations of a fleet, on which the pool works by address, and which it therefore keeps.

    Args:
        env: One of Gymnasium's environments, whose model they share.
        parameters: Of all environments, or of each; functions among the values are functions of the model.
        num_envs: How many.
    """

    def __init__(self, env: Any, parameters: Sequence[Parameters], num_envs: int) -> None:
        import mujoco  # not before one of its environments is made

        _find_functions()
        _check_callbacks(mujoco)
        self._model = env.model
        self._data = [mujoco.MjData(self._model) for _ in range(num_envs)]
        self._renderers: dict[int, Any] = {}
        self._shared = {
            "timestep": self._model.opt.timestep,
            "frame_skip": env.frame_skip,
            "init_qpos": env.init_qpos.tolist(),
            "init_qvel": env.init_qvel.tolist(),
        }
        self._addresses = [self._addresses_of(data) for data in self._data]
        self.parameters = [self.completed(i, parameters[i % len(parameters)]) for i in range(num_envs)]
        """Of each environment, as the pool takes them."""

    def completed(self, index: int, parameters: Parameters) -> Parameters:
        """The parameters of environment ``index`` as the pool takes them."""
        known = {name: value(self._model) if callable(value) else value for name, value in parameters.items()}
        return {**self._shared, **known, "simulation": self._addresses[index]}

    def _addresses_of(self, data: Any) -> list[int]:
        arrays = [_checked(name, getattr(data, name)) for name in _native.mujoco_arrays()]
        pairs = [number for array in arrays for number in (array.ctypes.data, array.size)]
        return [self._model._address, data._address, *pairs]

    def check_attribute(self, name: str, value: Any) -> None:
        """Refuses, with an UnsupportedError, what an attribute of Gymnasium's would make another environment of."""
        check_attribute(name, value)

    def draw(self, index: int, env: Any) -> Any:
        """The frame of environment ``index``, in the environment's own render mode."""
        renderer = self._renderers.get(index)
        if renderer is None:
            # One each: a camera keeps looking to where it first looked.
            own = env.mujoco_renderer
            looks = (own.default_cam_config, own.width, own.height, own.max_geom, own.camera_id, None, own._vopt)
            renderer = self._renderers[index] = type(own)(self._model, self._data[index], *looks)
        return renderer.render(env.render_mode)

    def close(self) -> None:
        """Closes what draws."""
        while self._renderers:
            self._renderers.popitem()[1].close()


def _checked(name: str, array: Any) -> Any:
    """An array that compiled code may take for doubles one after another."""
    if array.dtype != np.float64 or not array.flags.c_contiguous:
        raise UnsupportedError(f"a MuJoCo whose {name} is no array of float64 in a row, but of {array.dtype}")
    return array


@functools.cache
def _find_functions() -> None:
    """Hands MuJoCo's functions to the compiled environments, from the library that the package has loaded."""
    import mujoco

    library = ctypes.CDLL(_loaded_library())
    missing = [name for name in _FUNCTIONS if not hasattr(library, name)]
    if missing:
        raise UnsupportedError(f"MuJoCo {mujoco.__version__}, which has no {missing[0]}")
    addresses = {name: _address(library, name) for name in _FUNCTIONS}
    _native.use_mujoco(addresses, int(mujoco.mjtState.mjSTATE_INTEGRATION))


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.addressof(ctypes.c_char.in_dll(library, name))


def _loaded_library() -> str:
    # Where it lies differs between versions of the package; what is loaded is what Gymnasium's environments use.
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if Path(path).name.startswith("libmujoco.so"):
            return f"/{path}"
    raise UnsupportedError("a MuJoCo whose library is not loaded as libmujoco.so")


def _check_callbacks(mujoco: Any) -> None:
    """Functions in Python that MuJoCo calls in every step would hold up all threads."""
    for name in dir(mujoco):
        if name.startswith("get_mjcb_") and getattr(mujoco, name)() is not None:
            raise UnsupportedError(f"a callback of MuJoCo's ({name.removeprefix('get_')})")
