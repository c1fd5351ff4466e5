"""Tianshou's ShmemVectorEnv, with its defaults."""

from __future__ import annotations

from typing import Any, final

from tianshou.env import ShmemVectorEnv

from fault_matrix.subject import SEED, Answer, CannotBeMeasured, Setup, Subject, rows, zeros


@final
class TianshouShmem(Subject):
    """One process per environment, observations in shared memory. Its limit only sorts out who is ready."""

    def __init__(self, envs: Any) -> None:
        self._envs = envs

    def reset(self) -> None:
        """Reset all environments; an int given to `reset` would be everybody's seed."""
        self._envs.seed(SEED)
        self._envs.reset()

    def step(self) -> Answer:
        """Step all environments."""
        observations, rewards, *_ = self._envs.step(zeros())
        return Answer(rows(observations, rewards))

    def close(self) -> None:
        """Close it."""
        self._envs.close()


def make(setup: Setup) -> Subject:
    """Make one."""
    if setup.checks_nan:
        raise CannotBeMeasured("it has no check for NaN")
    return TianshouShmem(ShmemVectorEnv(setup.env_fns()))
