"""Where an environment's episode began: the seed it was reset with, or what its generator was before the reset.

Written into the block before every reset, it outlives the process. There are two slots a row, as the episode before
may still be needed until whoever waits for a turn has seen its end.
"""

from __future__ import annotations

from typing import Any, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]

# An episode's number, the kind of its origin, the seed or that of its generator, the generator's state.
NUM_WORDS = 8
_UNKNOWN, _SEEDED, _RUNNING, _RUNNING_UNSEEDED = range(4)
_LARGEST = 2**64 - 1
_NOTHING_KNOWN = (_UNKNOWN, 0, 0, 0, 0, 0, 0)


class UnknownOriginError(LookupError):
    """An episode cannot be begun again as it was."""


@final
class Origins:
    """The origins of some environments.

    Args:
        episodes: uint64 (n,), how many episodes each has begun.
        slots: uint64 (n, 2, NUM_WORDS).
    """

    def __init__(self, episodes: Words, slots: Words) -> None:
        self._episodes, self._slots = episodes, slots

    def note(self, row: int, env: gymnasium.Env[Any, Any], seed: int | None) -> None:
        """To be called before a reset."""
        number = int(self._episodes[row]) + 1
        self._slots[row, number % 2] = (number, *_origin(env.unwrapped, seed))
        self._episodes[row] = number

    def restore(self, row: int, number: int, env: gymnasium.Env[Any, Any]) -> int | None:
        """Brings an environment back to where it was before the reset that began an episode.

        Returns the seed of that reset.
        """
        noted, kind, seed, *state = self._slots[row, number % 2].tolist()
        if noted != number or kind == _UNKNOWN:
            raise UnknownOriginError("it has a random generator that is not Gymnasium's")
        self._episodes[row] = number
        if kind == _SEEDED:
            return int(seed)
        inner = env.unwrapped
        gymnasium.Env.reset(inner, seed=seed if kind == _RUNNING else None)  # so that np_random_seed is what it was
        inner.np_random.bit_generator.state = _as_state(state)
        return None


def _origin(env: gymnasium.Env[Any, Any], seed: int | None) -> tuple[int, ...]:
    if seed is not None:
        return (_SEEDED, seed, 0, 0, 0, 0, 0) if seed <= _LARGEST else _NOTHING_KNOWN
    try:
        bits, own_seed = env.np_random.bit_generator, env.np_random_seed
    except Exception:  # what is an environment's own affair must not make its reset fail
        return _NOTHING_KNOWN
    if type(bits) is not np.random.PCG64:
        return _NOTHING_KNOWN
    state: Any = bits.state
    seeded = own_seed is not None and 0 <= own_seed <= _LARGEST
    numbers = divmod(state["state"]["state"], 2**64) + divmod(state["state"]["inc"], 2**64)
    half = state["has_uint32"] << 32 | state["uinteger"]
    return (_RUNNING, own_seed, *numbers, half) if seeded else (_RUNNING_UNSEEDED, 0, *numbers, half)


def _as_state(words: list[int]) -> dict[str, Any]:
    upper, lower, upper_increment, lower_increment, half = words
    return {
        "bit_generator": "PCG64",
        "state": {"state": upper << 64 | lower, "inc": upper_increment << 64 | lower_increment},
        "has_uint32": half >> 32,
        "uinteger": half % 2**32,
    }
