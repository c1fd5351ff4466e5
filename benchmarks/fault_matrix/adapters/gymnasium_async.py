"""Gymnasium's AsyncVectorEnv, with its defaults. `step_wait(timeout=)` is its limit for a step."""

from __future__ import annotations

from typing import Any, final

from gymnasium.vector import AsyncVectorEnv

from fault_matrix.subject import SEED, Answer, CannotBeMeasured, Setup, Subject, rows, zeros


@final
class GymnasiumAsync(Subject):
    """One process per environment, observations in shared memory."""

    def __init__(self, envs: Any) -> None:
        self._envs = envs
        self._seconds: float | None = None

    def reset(self) -> None:
        """Reset all environments."""
        self._envs.reset(seed=SEED)

    def step(self) -> Answer:
        """Step all environments."""
        self._envs.step_async(zeros())
        observations, rewards, *_ = self._envs.step_wait(timeout=self._seconds)
        return Answer(rows(observations, rewards))

    def limit_steps(self, seconds: float) -> None:
        """Wait no longer than that."""
        self._seconds = seconds

    def close(self) -> None:
        """Close it."""
        self._envs.close()


def make(setup: Setup) -> Subject:
    """Make one."""
    if setup.checks_nan:
        raise CannotBeMeasured("it has no check for NaN")
    return GymnasiumAsync(AsyncVectorEnv(setup.env_fns()))
