"""The words that the caller and its workers pass through the mailroom, and how long either stays awake."""

from __future__ import annotations

# Commands.
STEP = 1
ORDER = 2
CLOSE = 3

# How a turn was finished.
ALL_IN_BLOCK = 0
REPORT_FOLLOWS = 1

FOREVER = 1e9
"""Seconds; a waiting worker is ended by the command CLOSE or by the end of the caller."""

WATCH_INTERVAL = 0.05
"""Seconds after which a waiting caller looks whether its workers are alive."""

WORKER_PAUSE = 20e-6
WORKER_YIELD = 200e-6
"""Seconds a worker stays awake between turns: long enough for a policy's forward pass, then it sleeps."""

CALLER_PAUSE = 50e-6
CALLER_YIELD = 200e-6
"""Seconds the caller stays awake while its workers take their turn."""

SHORT_TURN = 150e-6
"""Seconds; a turn shorter than this is over before a sleeping caller would be awake again."""
