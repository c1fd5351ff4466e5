"""NumPy's, Python's and torch's global generators where environments run: seeded, and different in every worker."""

from __future__ import annotations

import pickle
import random
import sys
import zlib
from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

_fleet_numbers = count()


def fleet_seed() -> int:
    """Different for every fleet of a process; the same for a program that begins with ``np.random.seed(...)``.

    Workers seed their global generators from it: forked ones would all share the caller's state, and
    environments that draw parameters from it in their constructors would all be alike.
    """
    state = pickle.dumps(np.random.get_state(legacy=False))
    return zlib.crc32(state) * 2**20 + next(_fleet_numbers)


def seed_global_generators(seed: Sequence[int]) -> None:
    """Seeds all of them, in this process."""
    words = np.random.SeedSequence(seed).generate_state(3)
    random.seed(int(words[0]))
    np.random.seed(words[1])
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(int(words[2]))


def global_states() -> list[bytes]:
    """What all of them are now: the same again if nobody drew from any, or seeded it."""
    states: list[Any] = [random.getstate(), np.random.get_state(legacy=False)]
    if "torch" in sys.modules:
        states.append(sys.modules["torch"].get_rng_state().numpy().tobytes())
    return [pickle.dumps(state) for state in states]
