"""What is likelier to be drawn from a replay buffer: a number for every slot, and their sums in a tree.

                        1: sum of all                 drawing: a number below the sum of all walks down, to the left
               2: sum of 4, 5       3: sum of 6, 7    while it is less than what lies there, else to the right without
            4: slot 0  5: slot 1  6: slot 2  7: ...   that. A whole batch walks at once, and so is changed.

Slots that hold nothing have the priority 0 and are never drawn. Every sum is worked out from the two below it, never by
a difference: so rounding errors do not add up.
"""

from __future__ import annotations

from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

Indices: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

_SMALLEST_ERROR = 1e-6
"""Added to every error: what is known well by now may yet be drawn."""


@final
class Priorities:
    """A priority for each of `capacity` slots: the size of its error, to the power of `exponent`.

    Args:
        capacity: how many slots there are.
        exponent: how much an error counts; 1 draws in proportion to it, 0 would draw all alike.
    """

    def __init__(self, capacity: int, exponent: float) -> None:
        self._exponent = exponent
        self._levels = max(capacity - 1, 1).bit_length()
        self._first = 1 << self._levels
        # Zeros that are never touched take no memory.
        self._sums: Floats = np.zeros(2 * self._first)
        self.of_slots: Floats = self._sums[self._first : self._first + capacity]
        """The priority of every slot; after they were written to from outside, `restore` must be called."""
        self.largest = 1.0
        """The largest priority there has been: that of whatever is new."""

    def add(self, slots: Indices) -> None:
        """Something new is in these slots: it is to be drawn soon."""
        self._set(slots, np.full(len(slots), self.largest))

    def change(self, slots: Indices, errors: npt.NDArray[np.floating[Any]]) -> None:
        """Give slots the priorities of their errors, finite numbers of either sign; the last one counts."""
        found = (np.abs(errors.astype(np.float64)) + _SMALLEST_ERROR) ** self._exponent
        self.largest = max(self.largest, float(found.max(initial=0.0)))
        self._set(slots, found)

    def draw(self, size: int, generator: np.random.Generator) -> Indices:
        """Slots, each with a chance in proportion to its priority: one from each of `size` equal parts of the sum."""
        left = (np.arange(size) + generator.random(size)) * (self._sums[1] / size)
        at = np.ones(size, np.int64)
        for _ in range(self._levels):
            at *= 2
            lower = self._sums[at]
            # A number that rounding has carried beyond the end stays where there is something.
            right = (left >= lower) & (self._sums[at + 1] > 0)
            left -= np.where(right, lower, 0.0)
            at += right
        return at - self._first

    def chances(self, slots: Indices) -> Floats:
        """How likely each of these slots is to be drawn."""
        chances: Floats = self.of_slots[slots] / self._sums[1]
        return chances

    def restore(self, largest: float) -> None:
        """Work out all sums anew, after `of_slots` was written to."""
        self.largest = largest
        for level in range(self._levels - 1, -1, -1):
            below = self._sums[2 << level : 4 << level]
            self._sums[1 << level : 2 << level] = below[::2] + below[1::2]

    def _set(self, slots: Indices, priorities: Floats) -> None:
        self.of_slots[slots] = priorities
        at = slots + self._first
        for _ in range(self._levels):
            at >>= 1
            self._sums[at] = self._sums[2 * at] + self._sums[2 * at + 1]


def check_priorities(saved: Floats, largest: float) -> None:
    """Refuse numbers that are no priorities: sums of them would lead nowhere."""
    if not all(np.isfinite(each).all() and np.all(each >= 0) for each in (saved, np.float64(largest))):
        raise ValueError("The saved buffer's priorities must be finite numbers of 0 or more.")
