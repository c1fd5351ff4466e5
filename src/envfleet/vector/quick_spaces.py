"""The same ``Discrete`` space with a quicker ``contains``.

Many environments assert ``self.action_space.contains(action)`` at every step, and for a Discrete space that
assertion is a third of CartPole's whole step. While an environment steps, its space therefore runs as a
subclass that answers for the one type of action we hand out, and leaves all others to Gymnasium's code.
"""

from __future__ import annotations

from typing import Any, final

from gymnasium import spaces


@final
class _QuickDiscrete(spaces.Discrete):
    _first: int
    _end: int

    def contains(self, x: Any) -> bool:
        """As Gymnasium's, for values of exactly the space's dtype without its generality."""
        if type(x) is self.dtype.type:
            return self._first <= int(x) < self._end
        return super().contains(x)


def quicken(space: Any) -> None:
    """Turns a plain Discrete space, in place, into one whose ``contains`` is quick."""
    if type(space) is spaces.Discrete:
        first = int(space.start)
        vars(space).update(_first=first, _end=first + int(space.n))
        space.__class__ = _QuickDiscrete


def restore(space: Any) -> None:
    """Undoes ``quicken``."""
    if type(space) is _QuickDiscrete:
        del space._first, space._end
        space.__class__ = spaces.Discrete  # type: ignore[assignment]
