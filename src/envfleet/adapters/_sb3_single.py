"""One environment as Stable-Baselines3's ``make_vec_env`` makes it, to be made where it runs.

Stable-Baselines3, and with it torch, is imported there only if it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import gymnasium
from gymnasium.envs.registration import EnvSpec

from envfleet._single import is_function, make_env
from envfleet.vector.fused_env import AnyEnv


@final
@dataclass(frozen=True)
class SingleEnv:
    """Called with its rank, it makes an environment; called without one, it makes one that logs nothing.

    Attributes:
        spec: What is made.
        env_kwargs: With which constructor arguments.
        seed: Seeds the action spaces, if given.
        wrapper_class: Wraps the environment and its ``Monitor``; None: the fleet is monitored as a whole.
        wrapper_kwargs: Its arguments.
        monitor_dir: Where episodes are logged, if anywhere.
        monitor_kwargs: Arguments of ``Monitor``.
    """

    spec: EnvSpec
    env_kwargs: dict[str, Any]
    seed: int | None
    wrapper_class: Callable[..., AnyEnv] | None
    wrapper_kwargs: dict[str, Any]
    monitor_dir: str | None
    monitor_kwargs: dict[str, Any]

    def __call__(self, rank: int | None = None) -> AnyEnv:
        """Makes one."""
        env = _patched(self._bare())
        if self.seed is not None:
            env.action_space.seed(self.seed + (rank or 0))
        if self.wrapper_class is None:
            return env
        from stable_baselines3.common.monitor import Monitor

        is_logged = self.monitor_dir is not None and rank is not None
        file = str(Path(str(self.monitor_dir)) / str(rank)) if is_logged else None
        return self.wrapper_class(Monitor(env, filename=file, **self.monitor_kwargs), **self.wrapper_kwargs)

    def _bare(self) -> AnyEnv:
        make = partial(make_env, self.spec, wrappers=(), drawn={})
        if is_function(self.spec):
            return make(env_kwargs=self.env_kwargs)
        try:
            return make(env_kwargs={"render_mode": "rgb_array", **self.env_kwargs})
        except TypeError:  # it cannot draw
            return make(env_kwargs=self.env_kwargs)


def _patched(env: Any) -> AnyEnv:
    """An environment of the old Gym becomes one of Gymnasium's, as Stable-Baselines3 does it."""
    if isinstance(env, gymnasium.Env):
        return env
    from stable_baselines3.common.vec_env.patch_gym import _patch_env

    patched: AnyEnv = _patch_env(env)
    return patched
