"""Which of Gymnasium's environments exist in C++, and how their constructor arguments become parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

from gymnasium.envs.registration import EnvSpec

Parameters = dict[str, Any]


class UnsupportedError(TypeError):
    """The native environments cannot do what was asked; the message says what."""


@final
@dataclass(frozen=True)
class NativeKind:
    """An environment that exists in C++.

    Attributes:
        name: What the compiled catalogue calls it.
        parameters: From constructor arguments to the parameters in C++; its signature is Gymnasium's, without
            ``render_mode``.
        shaping: Arguments on which the spaces depend: all environments of a fleet share them.
    """

    name: str
    parameters: Callable[..., Parameters]
    shaping: frozenset[str] = frozenset()

    def unknown_arguments(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are no arguments of this environment."""
        known = {*inspect.signature(self.parameters).parameters, "render_mode"}
        return sorted(set(names) - known)

    def parameters_from(self, env_kwargs: dict[str, Any]) -> Parameters:
        """The parameters in C++ of an environment made with these arguments."""
        return self.parameters(**{name: value for name, value in env_kwargs.items() if name != "render_mode"})


def _cart_pole(sutton_barto_reward: bool = False) -> Parameters:
    return {"_sutton_barto_reward": bool(sutton_barto_reward)}


_CLASSIC_CONTROL = "gymnasium.envs.classic_control"

_KINDS: dict[str, NativeKind] = {
    f"{_CLASSIC_CONTROL}.cartpole:CartPoleEnv": NativeKind("CartPole", _cart_pole),
}
"""By entry point, so that whoever registers another class under Gymnasium's id gets that class."""


def find(spec: EnvSpec) -> NativeKind | None:
    """The environment in C++ that does what the spec's entry point does, if there is one."""
    return _KINDS.get(spec.entry_point) if isinstance(spec.entry_point, str) else None
