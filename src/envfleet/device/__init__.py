"""Batches on a device: functional environments in one compiled step (JAX).

``families`` recognises environments, without JAX. ``functional`` says what is asked of one; ``func_env``, ``gymnax``,
``brax``, ``playground`` and ``jumanji`` adapt a family each, ``own`` takes those of the user. ``brax_interface`` is
what Brax and Playground share. ``kernels`` are the compiled functions, ``draws`` the parameters of episodes, ``batch``
and ``engine`` run them, ``results`` show what came, ``env`` is the vector environment, ``single`` one environment as a
Python object.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from envfleet._optional import needs
from envfleet.device.functional import FunctionalEnv

if TYPE_CHECKING:
    from envfleet.device.env import JaxEnvState, JaxVectorEnv, Rollout

__all__ = ["FunctionalEnv", "JaxEnvState", "JaxVectorEnv", "Rollout"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs("jax"):
        return getattr(importlib.import_module("envfleet.device.env"), name)
