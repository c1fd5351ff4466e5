"""Training: many environments at once, a policy that learns from them, curves, weights, and an agent to watch.

    from envfleet.train import A2CConfig, evaluate, train

    result = train(A2CConfig("LunarLander-v3"))
    print(evaluate(result.agent).mean_return)

The names are those of `public.py`. They are imported when the first of them is asked for: torch takes two seconds,
which a command line that only reads settings (`envfleet.train.config`) would rather not spend.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from envfleet._optional import needs

if TYPE_CHECKING:
    from envfleet.train.public import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        if name == "__all__" or not name.startswith("_"):
            names = _public_names()
            globals().update(names)
            if name in names:
                return names[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_public_names())


def _public_names() -> dict[str, Any]:
    with needs("train"):
        public = importlib.import_module("envfleet.train.public")
    return {name: getattr(public, name) for name in ("__all__", *public.__all__)}


class _Package(ModuleType):
    """Keeps the modules `evaluate` and `showcase`, once imported, from taking the place of the functions."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("evaluate", "showcase") or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
