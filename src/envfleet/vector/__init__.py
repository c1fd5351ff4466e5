"""The engine: vector environments and what they are made of."""

from envfleet.native.env import NativeVectorEnv
from envfleet.vector.process import AsyncVectorEnv
from envfleet.vector.ray import RayVectorEnv
from envfleet.vector.sync import SyncVectorEnv
from envfleet.vector.vector_env import FleetVectorEnv

__all__ = ["AsyncVectorEnv", "FleetVectorEnv", "NativeVectorEnv", "RayVectorEnv", "SyncVectorEnv"]
