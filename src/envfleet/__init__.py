"""Many copies of a reinforcement-learning environment at once, behind one batched Gymnasium interface."""

import importlib
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from envfleet.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    CustomSpaceError,
    DamagedRunError,
    EnvRaisedError,
    FleetError,
    FleetInUseError,
    InvalidActionError,
    InvalidOutputError,
    NoAsyncCallError,
    NonFiniteError,
    ResetNeeded,
    RunInUseError,
    UnsupportedError,
    UntrustedRunError,
    WorkerDiedError,
    WorkerError,
    WorkerStuckError,
)
from envfleet.make import make_vec
from envfleet.native.env import NativeVectorEnv
from envfleet.native.registration import register as _register_native_envs
from envfleet.randomize import Distribution, choice, loguniform, normal, uniform
from envfleet.rendering import mosaic
from envfleet.tuning import TuningResult, tune
from envfleet.vector import AsyncVectorEnv, FleetVectorEnv, RayVectorEnv, SyncVectorEnv

if TYPE_CHECKING:  # see _SUBPACKAGES
    from envfleet import backends as backends
    from envfleet import device as device
    from envfleet import errors as errors
    from envfleet import native as native
    from envfleet import testing as testing
    from envfleet import train as train
    from envfleet import tuning as tuning
    from envfleet import typing as typing
    from envfleet import vector as vector
    from envfleet import wrappers as wrappers

__version__ = "0.1.0"

_register_native_envs()

__all__ = [
    "AlreadyPendingCallError",
    "AsyncVectorEnv",
    "AutoresetMode",
    "ClosedEnvironmentError",
    "CustomSpaceError",
    "DamagedRunError",
    "Distribution",
    "EnvRaisedError",
    "FleetError",
    "FleetInUseError",
    "FleetVectorEnv",
    "InvalidActionError",
    "InvalidOutputError",
    "NativeVectorEnv",
    "NoAsyncCallError",
    "NonFiniteError",
    "RayVectorEnv",
    "ResetNeeded",
    "RunInUseError",
    "SyncVectorEnv",
    "TuningResult",
    "UnsupportedError",
    "UntrustedRunError",
    "WorkerDiedError",
    "WorkerError",
    "WorkerStuckError",
    "choice",
    "loguniform",
    "make_vec",
    "mosaic",
    "normal",
    "tune",
    "uniform",
]

_SUBPACKAGES = ("backends", "device", "errors", "native", "testing", "train", "tuning", "typing", "vector", "wrappers")
"""Public modules: attributes of this one, each imported when first asked for."""


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBPACKAGES} - {"Any", "TYPE_CHECKING", "importlib"})
