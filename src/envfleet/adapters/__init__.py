"""Fleets under the interfaces of other libraries: one module per library, which is imported when it is asked for.

``sb3``: Stable-Baselines3's ``VecEnv``. ``tianshou``: Tianshou's ``BaseVectorEnv``. ``torchrl``: environments for
TorchRL's collectors. ``envpool``: EnvPool's own calls. ``dm_env``: time steps of DeepMind's environment interface.
``rllib`` and ``sample_factory``: what these make environments with. ``skrl``: last observations for its agents.
``baselines``: the calls of OpenAI Baselines' ``VecEnv``. ``minari``: datasets of a fleet's episodes. Each needs the
library that it speaks to, if any, only once it is imported.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["baselines", "dm_env", "envpool", "minari", "rllib", "sample_factory", "sb3", "skrl", "tianshou", "torchrl"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
