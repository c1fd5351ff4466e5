"""Packages that import their names only when these are first asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from envfleet._optional import needs


def lazy_names(
    package: str, modules: Mapping[str, str], extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and the `__dir__` of a package that has the names of other modules.

    Args:
        package: The name of the package.
        modules: Each name, and the module that it is from.
        extra: The extra of envfleet that brings what these modules need.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with nullcontext() if extra is None else needs(extra):
            value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)  # so that it is simply there the next time
        return value

    return get, lambda: sorted(modules)
