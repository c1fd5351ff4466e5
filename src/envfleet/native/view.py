"""What ``get_attr("unwrapped")`` gives of a compiled environment: something to look at, in place of a Python object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, final

import gymnasium


@final
class NativeEnvView(gymnasium.Env[Any, Any]):
    """One compiled environment, seen from Python. It shows what the environment is now; it changes nothing.

    Args:
        get: Returns an attribute by name; an AttributeError names those that there are.
        name: What the environment is called.
    """

    def __init__(self, get: Callable[[str], Any], name: str) -> None:
        vars(self).update(_get=get, _name=name)
        # Read once: they stay as they are, and gymnasium.Env has attributes of these names itself.
        fixed = {each: get(each) for each in ("spec", "observation_space", "action_space", "metadata", "render_mode")}
        vars(self).update(fixed)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what pickle and copy look for
            raise AttributeError(name)
        return vars(self)["_get"](name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Set attributes of a native environment by envs.set_attr({name!r}, …).")

    @property
    def unwrapped(self) -> NativeEnvView:
        """Itself: there are no wrappers around compiled environments."""
        return self

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """A copy of its random generator, as it is now."""
        return vars(self)["_get"]("np_random")

    @property
    def np_random_seed(self) -> Any:
        """The seed of its random generator."""
        return vars(self)["_get"]("np_random_seed")

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute by name."""
        return getattr(self, name)

    def has_wrapper_attr(self, name: str) -> bool:
        """Whether there is such an attribute."""
        return hasattr(self, name)

    def render(self) -> Any:
        """The frame of the environment as it is now."""
        return vars(self)["_get"]("render")

    def step(self, action: Any) -> NoReturn:  # noqa: ARG002
        """Refused: the fleet steps it."""
        self._refuse("step")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> NoReturn:  # noqa: ARG002
        """Refused: the fleet resets it."""
        self._refuse("reset")

    def close(self) -> None:
        """Nothing: the fleet closes it."""

    def __str__(self) -> str:
        return f"<{vars(self)['_name']}, compiled>"

    __repr__ = __str__

    def __reduce__(self) -> NoReturn:
        raise TypeError("A view of a native environment cannot be copied or pickled: keep it by envs.get_state(index).")

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"{self} is one of a fleet, which alone can {what} it: use envs.{what}().")
