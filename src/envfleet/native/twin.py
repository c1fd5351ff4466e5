"""One of Gymnasium's own environments, beside the native ones: it knows the spaces, and it draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from envfleet.errors import UnsupportedError
from envfleet.native.catalogue import NativeKind
from envfleet.vector.fused_env import AnyEnv
from envfleet.vector.spaces import EnvFace


@final
class Twin:
    """A single environment made by ``gymnasium.make``, which takes no part in the stepping.

    Where a package is missing that only Gymnasium's environment needs, one that knows the spaces stands in for it.

    Attributes:
        face: Its spaces, metadata and render mode.
    """

    def __init__(self, spec: EnvSpec, kind: NativeKind, env_kwargs: dict[str, Any]) -> None:
        _check_render_mode(env_kwargs.get("render_mode"))
        self._pose = kind.pose
        self._env = _make(spec, kind, env_kwargs)
        self.face = EnvFace.of(self._env)
        layer: Any = self._env
        while isinstance(layer, gymnasium.Wrapper):
            if type(layer) not in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
                self._env.close()
                raise UnsupportedError(f"the wrapper {type(layer).__name__} in the environment's spec")
            layer = layer.env

    def draw(self, attributes: Mapping[str, Any]) -> Any:
        """The frame of an environment in the state that the attributes describe."""
        self._pose(self._env.unwrapped, attributes)
        return self._env.unwrapped.render()

    @property
    def spec(self) -> EnvSpec | None:
        """What Gymnasium made it from; None of one that stands in for it."""
        return self._env.spec

    @property
    def unwrapped(self) -> Any:
        """The environment itself."""
        return self._env.unwrapped

    def close(self) -> None:
        """Closes its window, if it has one."""
        self._env.close()


def _make(spec: EnvSpec, kind: NativeKind, env_kwargs: dict[str, Any]) -> AnyEnv:
    try:
        return gymnasium.make(spec, **env_kwargs)
    except gymnasium.error.DependencyNotInstalled:
        if kind.stand_in is None or spec.additional_wrappers or env_kwargs.get("render_mode") is not None:
            raise
        return kind.stand_in({**spec.kwargs, **env_kwargs})


def _check_render_mode(mode: Any) -> None:
    if mode == "human" or str(mode).endswith("_list"):
        raise UnsupportedError(f"render_mode={mode!r}, as it draws at every step")
