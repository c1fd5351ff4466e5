"""Stable-Baselines3's SubprocVecEnv, with its defaults. Its check for NaN is the wrapper VecCheckNan."""

from __future__ import annotations

from typing import Any, final

from stable_baselines3.common.vec_env import SubprocVecEnv, VecCheckNan

from fault_matrix.subject import SEED, Answer, Setup, Subject, rows, zeros


@final
class Sb3Subproc(Subject):
    """One process per environment, everything through pipes. It has no limit for a step."""

    def __init__(self, envs: Any) -> None:
        self._envs = envs

    def reset(self) -> None:
        """Reset all environments."""
        self._envs.seed(SEED)
        self._envs.reset()

    def step(self) -> Answer:
        """Step all environments."""
        observations, rewards, _, _ = self._envs.step(zeros())
        return Answer(rows(observations, rewards))

    def close(self) -> None:
        """Close it."""
        self._envs.close()


def make(setup: Setup) -> Subject:
    """Make one."""
    envs = SubprocVecEnv(setup.env_fns())
    return Sb3Subproc(VecCheckNan(envs, raise_exception=True) if setup.checks_nan else envs)
