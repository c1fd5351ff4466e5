"""Environments in worker processes: the block they share, the workers, and the supervisor that watches them."""

from envfleet.vector.process.env import AsyncVectorEnv

__all__ = ["AsyncVectorEnv"]
