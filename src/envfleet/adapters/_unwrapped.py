"""Attributes of the innermost environment, for libraries that mean those.

The functions are run by ``apply`` where the environments live, so this module imports none of these libraries.
"""

from __future__ import annotations

from typing import Any


def get_unwrapped(env: Any, name: str) -> Any:
    """This attribute of the environment inside all wrappers; methods are returned, not called."""
    return getattr(env.unwrapped, name)


def set_unwrapped(env: Any, name: str, value: Any) -> None:
    """Sets this attribute there, whether it exists or not."""
    setattr(env.unwrapped, name, value)
