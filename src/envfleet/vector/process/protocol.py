"""The words that the caller and its workers pass through the mailroom, and how often the caller looks around."""

from __future__ import annotations

from dataclasses import dataclass

# Commands.
STEP = 1
ORDER = 2
CLOSE = 3

# Kinds of tickets: what to do with the one environment they are for.
STEP_ROW = 0
STEP_ROW_WITH_PARCEL = 1
RESET_ROW = 2

# How a turn or a ticket was finished.
ALL_IN_BLOCK = 0
REPORT_FOLLOWS = 1

FOREVER = 1e9
"""Seconds; a waiting worker is ended by the command CLOSE or by the end of the caller."""

WATCH_INTERVAL = 0.05
"""Seconds after which a waiting caller looks whether its workers are alive."""


@dataclass(frozen=True)
class Making:
    """What a worker says before it makes an environment."""

    env_index: int
