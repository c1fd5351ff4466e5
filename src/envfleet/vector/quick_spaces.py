"""The same ``Discrete`` space with a quicker ``contains``.

Many environments assert ``self.action_space.contains(action)`` at every step, and for a Discrete space that
assertion is a third of CartPole's whole step. While an environment steps, its space therefore runs as a
subclass that answers for the one type of action we hand out, as long as the space is what it was, and leaves all else
to Gymnasium's code.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from gymnasium import spaces

from envfleet import _core

_contains = spaces.Discrete.contains


_INT64 = np.iinfo(np.int64)


@final
class _QuickDiscrete(spaces.Discrete):
    _quick: _core.DiscreteRange

    def __reduce__(self) -> Any:
        """A copy is a plain space: whoever made it does not step it here."""
        state = {name: value for name, value in vars(self).items() if name != "_quick"}
        return spaces.Discrete.__new__, (spaces.Discrete,), state


# Compiled: for values of exactly the space's dtype it asks `_quick`, for all others Gymnasium's method.
_QuickDiscrete.contains = _core.DiscreteRange.method_of(_QuickDiscrete)  # type: ignore[method-assign]


def quicken(space: Any) -> None:
    """Turns a plain Discrete space, in place, into one whose ``contains`` is quick."""
    if type(space) is not spaces.Discrete or "contains" in vars(space) or spaces.Discrete.contains is not _contains:
        return
    n, start, dtype = space.n, space.start, space.dtype
    if type(n) is type(start) is dtype.type:
        first, end = int(start), int(start) + int(n)
        if _INT64.min <= first and end <= _INT64.max:
            vars(space)["_quick"] = _core.DiscreteRange(n, start, dtype, _contains, dtype.type, first, end)
            space.__class__ = _QuickDiscrete


def restore(space: Any) -> None:
    """Undoes ``quicken``."""
    if type(space) is _QuickDiscrete:
        del space._quick
        space.__class__ = spaces.Discrete  # type: ignore[assignment]
