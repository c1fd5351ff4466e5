"""MuJoCo behind the compiled environments: its functions, one model for all, and the data of every simulation."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from envfleet import _native
from envfleet.native.mujoco_arguments import check_attribute
from envfleet.native.parameters import Parameters, UnsupportedError

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
