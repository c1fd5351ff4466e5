"""The same ``Discrete`` space with a quicker ``contains``.

Many environments assert ``self.action_space.contains(action)`` at every step, and for a Discrete space that
assertion is a third of CartPole's whole step. While an environment steps, its space therefore runs as a
subclass that answers for the one type of action we hand out, as long as the space is what it was, and leaves all else
to Gymnasium's code.
"""

from __future__ import annotations

from typing import Any, final

from gymnasium import spaces

_contains = spaces.Discrete.contains


@final
class _QuickDiscrete(spaces.Discrete):
    # What `n`, `start` and `dtype` were, which never change but may be replaced, and what they say: the type of an
    # action, the first of them, and what comes after the last.
    _quick: tuple[Any, Any, Any, Any, int, int]

    def contains(self, x: Any) -> bool:
        """As Gymnasium's, for values of exactly the space's dtype without its generality."""
        n, start, dtype, kind, first, end = self._quick
        if type(x) is kind and self.n is n and self.start is start and self.dtype is dtype:
            return first <= int(x) < end
        return super().contains(x)

    def __reduce__(self) -> Any:
        """A copy is a plain space: whoever made it does not step it here."""
        state = {name: value for name, value in vars(self).items() if name != "_quick"}
        return spaces.Discrete.__new__, (spaces.Discrete,), state


def quicken(space: Any) -> None:
    """Turns a plain Discrete space, in place, into one whose ``contains`` is quick."""
    if type(space) is not spaces.Discrete or "contains" in vars(space) or spaces.Discrete.contains is not _contains:
        return
    n, start, dtype = space.n, space.start, space.dtype
    if type(n) is type(start) is dtype.type:
        first = int(start)
        attributes = vars(space)
        attributes["_quick"] = n, start, dtype, dtype.type, first, first + int(n)
        # Taken out and put back, which has Python give the dict keys of its own: those that are shared with all other
        # spaces take longer to read.
        last, value = attributes.popitem()
        attributes[last] = value
        space.__class__ = _QuickDiscrete


def restore(space: Any) -> None:
    """Undoes ``quicken``."""
    if type(space) is _QuickDiscrete:
        del space._quick
        space.__class__ = spaces.Discrete  # type: ignore[assignment]
