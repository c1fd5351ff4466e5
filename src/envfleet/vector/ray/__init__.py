"""Environments in Ray actors, on as many machines as there are: shards there, the block here, rows on the way."""

from envfleet.vector.ray.env import RayVectorEnv

__all__ = ["RayVectorEnv"]
