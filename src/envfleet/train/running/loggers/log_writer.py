"""What a logger is: something that takes a run's metrics row by row."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

Row: TypeAlias = Mapping[str, "float | int | None"]
"""One log interval: a number by column; None and NaN say that there is none. "step" is always one of them."""

_Writer = TypeVar("_Writer", bound="LogWriter")

_TAGS = {
    "actor_loss": "loss/actor",
    "approx_kl": "policy/approx_kl",
    "clip_fraction": "policy/clip_fraction",
    "critic_loss": "loss/critic",
    "dropped_episodes": "episode/dropped",
    "entropy": "policy/entropy",
    "epsilon": "policy/epsilon",
    "episode_length": "episode/length",
    "episode_return": "episode/return",
    "episodes": "episode/count",
    "eval_return": "evaluation/return",
    "is_success": "episode/is_success",
    "restarts": "episode/restarts",
    "epochs": "learning/epochs",
    "explained_variance": "critic/explained_variance",
    "learning_rate": "learning/learning_rate",
    "q_value": "critic/q_value",
    "seconds": "speed/seconds",
    "steps_per_second": "speed/steps_per_second",
    "temperature": "policy/temperature",
}


class LogWriter(ABC):
    """Something training reports its metrics to; usable in a `with` statement."""

    @abstractmethod
    def write(self, row: Row) -> None:
        """Takes one row; its "step" is the number of environment steps so far."""

    @abstractmethod
    def close(self) -> None:
        """Finishes what is still to be written; may be called more than once."""

    def __enter__(self: _Writer) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class LoggedRun:
    """The run that a logger is opened for.

    Attributes:
        path: its folder.
        config: its settings, as config.json holds them.
        resumed_at: the step from which a resumed run goes on; None for a new one.
    """

    path: Path
    config: Mapping[str, Any]
    resumed_at: int | None


def scalars(row: Row) -> dict[str, float]:
    """The row's numbers by tag, such as "loss/actor"; a column of one's own goes under "other"."""
    return {
        _TAGS.get(name, f"other/{name}"): float(value)
        for name, value in row.items()
        if name != "step" and value is not None and not math.isnan(value)
    }
