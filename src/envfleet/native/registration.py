"""Native fleets for ``gymnasium.make_vec``: ``import envfleet``, then ``make_vec("envfleet/CartPole-v1", 8)``.

Or ``make_vec("envfleet:envfleet/CartPole-v1", 8)``, which has Gymnasium do the import.

Every attribute of this module is the ``vector_entry_point`` of a registered id: the function that makes its fleets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from envfleet.errors import UnsupportedError
from envfleet.native import catalogue
from envfleet.native.env import NativeVectorEnv

_NAMESPACE = "envfleet"


def register() -> None:
    """Registers ``envfleet/ID`` for every ID of Gymnasium's that exists in C++."""
    for env_id, spec in list(gymnasium.registry.items()):
        if (
            spec.namespace is None
            and catalogue.find(spec) is not None
            and f"{_NAMESPACE}/{env_id}" not in gymnasium.registry
        ):
            gymnasium.register(
                f"{_NAMESPACE}/{env_id}",
                spec.entry_point,
                reward_threshold=spec.reward_threshold,
                max_episode_steps=spec.max_episode_steps,
                vector_entry_point=f"{__name__}:{env_id}",
                kwargs=dict(spec.kwargs),
            )


def make_fleet(
    env_id: str,
    num_envs: int = 1,
    *,
    copy: bool = True,
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    threads: int | None = None,
    first_ready: int | None = None,
    batch_size: int | None = None,
    **env_kwargs: Any,
) -> NativeVectorEnv:
    """Makes what ``gymnasium.make_vec`` asks for; all arguments as for NativeVectorEnv."""
    of_fleet: dict[str, Any] = {"threads": threads, "first_ready": first_ready, "batch_size": batch_size}
    try:
        return NativeVectorEnv(env_id, num_envs, copy, autoreset_mode, **of_fleet, env_kwargs=env_kwargs)
    except UnsupportedError as error:
        raise UnsupportedError(f"{env_id} does not support {error}.") from None


def __getattr__(name: str) -> Callable[..., NativeVectorEnv]:
    if f"{_NAMESPACE}/{name}" not in gymnasium.registry:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(make_fleet, f"{_NAMESPACE}/{name}")
