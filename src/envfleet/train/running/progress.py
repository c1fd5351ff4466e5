"""How a run tells where it stands."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from envfleet.train.agent import Agent
from envfleet.train.config import TrainConfig


@dataclass(frozen=True, eq=False)
class Progress:
    """Where a run stands after a log interval.

    Attributes:
        step: environment steps so far.
        total_steps: how many there will be.
        seconds: spent training so far, resumed runs included.
        episodes: how many have ended so far.
        mean_return: of the last 100 episodes; None before the first one ended.
        row: the figures of this interval by name, as in metrics.csv.
        agent: the policy as it is now; it goes on changing.
    """

    step: int
    total_steps: int
    seconds: float
    episodes: int
    mean_return: float | None
    row: Mapping[str, float | int | None]
    agent: Agent


Callback: TypeAlias = Callable[[Progress], "bool | None"]
"""Called after every log interval; returning False ends the training there, as if it had been interrupted."""


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """What `train` returns.

    Attributes:
        run_dir: the run's folder.
        agent: the trained policy.
        step: environment steps made.
        seconds: spent training, resumed runs included.
        mean_return: of the last 100 training episodes; None if none ended.
        finished: False if it was stopped before `total_steps`, by Ctrl-C, SIGTERM or the callback; `resume` goes on.
        stopped_by: the signal that came, SIGINT (Ctrl-C) or SIGTERM, if only in the last rollout; None if none did.
    """

    run_dir: Path
    agent: Agent
    step: int
    seconds: float
    mean_return: float | None
    finished: bool
    stopped_by: signal.Signals | None = None


class Reporter(ABC):
    """Shows a run's progress to people."""

    @abstractmethod
    def begin(self, config: TrainConfig, run_dir: Path, plan: str, step: int) -> None:
        """The run starts, at `step` if resumed; `plan` says where its environments run."""

    @abstractmethod
    def report(self, progress: Progress) -> None:
        """A log interval is over."""

    @abstractmethod
    def end(self, result: TrainingResult | None) -> None:
        """The run is over; None if an error ended it."""
