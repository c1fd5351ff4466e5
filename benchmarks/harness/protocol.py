"""What an engine's process answers, a JSON a line. Read by peers' Pythons too: it needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ready:
    """A made fleet: seconds to make it and reset it, bytes of PSS that it holds, its processes, its libraries."""

    seconds: float
    pss_bytes: int
    processes: int
    versions: dict[str, str]


@dataclass(frozen=True)
class Turn:
    """Calls of `step`, real steps of environments, the time of both; and what was used since the turn before.

    `choosing_seconds` is the part of `seconds` that a policy took to choose actions.
    """

    calls: int
    steps: int
    seconds: float
    idle_cpu_seconds: float
    idle_seconds: float
    choosing_seconds: float = 0.0
