"""A fleet as the kill matrix sees it. Read by peers' Pythons: it needs NumPy and what the environment needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fault_matrix.failing_env import NUM_ENVS, FailingEnv, Plan

SEED = 7


@dataclass(frozen=True)
class Setup:
    """What an adapter is told.

    Attributes:
        fault: How environment `FAILING` fails.
        marker: The file that it makes when it fails.
        folder: For files of the cell.
        step_seconds: The limit for a step, for libraries that have one.
        options: What sets this contestant apart from others of its library.
    """

    fault: str
    marker: str
    folder: str
    step_seconds: float
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def checks_nan(self) -> bool:
        """Whether the library's own check for NaN is to be on."""
        return self.fault == "nan-checked"

    def plan(self, index: int) -> Plan:
        """Of one environment."""
        return Plan(index, self.fault, self.marker)

    def env_fns(self) -> list[Callable[[], FailingEnv]]:
        """One function per environment."""
        return [partial(FailingEnv, self.plan(index)) for index in range(NUM_ENVS)]


@dataclass(frozen=True)
class Answer:
    """What a step gave: rows as text, whose episodes were openly begun anew, and what was said of failures."""

    rows: Mapping[int, str]
    restarted: tuple[int, ...] = ()
    words: str = ""


class CannotBeMeasured(Exception):  # noqa: N818  it says why there is no figure
    """The fault, or the check, does not exist for this contestant; says why."""


class Subject(ABC):
    """A library's fleet of `NUM_ENVS` failing environments."""

    @abstractmethod
    def reset(self) -> None:
        """Reset all environments, with `SEED`."""

    @abstractmethod
    def step(self) -> Answer:
        """Step all environments once."""

    @abstractmethod
    def close(self) -> None:
        """Close it as its users do."""

    def limit_steps(self, seconds: float) -> None:  # noqa: B027  most are told when they are made, or cannot be
        """From now on a step may take so long, if the library has a limit that can be set late."""


def zeros() -> Any:
    """The actions, which change nothing."""
    return np.zeros(NUM_ENVS, np.int64)


def row(observation: Any, reward: Any) -> str:
    """A row as text, equal if and only if all its bits are; NaN is what it is."""
    seen = np.asarray(observation)
    return f"{seen.dtype}{list(seen.shape)} {seen.tobytes().hex()} {np.asarray(reward, np.float64).tobytes().hex()}"


def rows(observations: Any, rewards: Any) -> dict[int, str]:
    """A batch, environment by environment."""
    return {index: row(observations[index], rewards[index]) for index in range(NUM_ENVS)}
