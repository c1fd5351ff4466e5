"""The engine: vector environments and what they are made of.

``vector_env`` holds the contract, ``engine`` what a fleet asks of whoever runs its environments, ``shard`` the Python
home of autoreset. ``sync``, ``process`` and ``ray`` are the engines for Python environments.
"""

from typing import Any

from envfleet.vector.process import AsyncVectorEnv
from envfleet.vector.ray import RayVectorEnv
from envfleet.vector.sync import SyncVectorEnv
from envfleet.vector.vector_env import FleetVectorEnv

__all__ = ["AsyncVectorEnv", "FleetVectorEnv", "RayVectorEnv", "SyncVectorEnv"]


def __getattr__(name: str) -> Any:
    if name == "NativeVectorEnv":  # where it was before it moved to envfleet.native, which builds on this package
        from envfleet.native.env import NativeVectorEnv

        return NativeVectorEnv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
