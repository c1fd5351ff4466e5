"""Many copies of a reinforcement-learning environment at once, behind one batched Gymnasium interface."""

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
from envfleet.randomize import choice, normal, uniform
from envfleet.tuning import TuningResult, tune
from envfleet.vector import AsyncVectorEnv, RayVectorEnv, SyncVectorEnv

__version__ = "0.1.0"

_register_native_envs()

__all__ = [
    "AlreadyPendingCallError",
    "AsyncVectorEnv",
    "AutoresetMode",
    "ClosedEnvironmentError",
    "CustomSpaceError",
    "DamagedRunError",
    "EnvRaisedError",
    "FleetError",
    "FleetInUseError",
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
    "make_vec",
    "normal",
    "tune",
    "uniform",
]
