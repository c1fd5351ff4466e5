"""EnvPool's own calls, on fleets: ``from envfleet.adapters import envpool`` instead of ``import envpool``.

::

    env = envpool.make("LunarLander-v3", env_type="gymnasium", num_envs=64, batch_size=16)
    env.async_reset()
    while True:
        observations, rewards, terminated, truncated, info = env.recv()
        env.send(actions, info["env_id"])

Any environment that ``envfleet.make_vec`` makes will do: compiled ones, Python ones, your own.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, overload

import gymnasium

from envfleet._optional import needs
from envfleet.adapters._envpool_config import EnvSpec, PoolConfig, config_of, fleet_for, spec_for
from envfleet.adapters._envpool_pool import EnvPool, GymnasiumEnvPool

__all__ = [
    "EnvPool",
    "EnvSpec",
    "GymnasiumEnvPool",
    "list_all_envs",
    "make",
    "make_dm",
    "make_gym",
    "make_gymnasium",
    "make_spec",
]

EnvType: TypeAlias = Literal["gymnasium", "gym", "dm"]


@overload
def make(task_id: Any, env_type: Literal["gymnasium", "gym"], **config: Any) -> GymnasiumEnvPool: ...
@overload
def make(task_id: Any, env_type: str, **config: Any) -> EnvPool: ...
def make(task_id: Any, env_type: str, **config: Any) -> EnvPool:
    """Makes a pool of environments.

    Args:
        task_id: EnvPool's name of an environment, or anything that ``envfleet.make_vec`` takes. ``"Pong-v5"`` stands
            for ``"ALE/Pong-v5"``.
        env_type: "gymnasium" for Gymnasium's tuples, "dm" for time steps of ``dm_env``.
        **config: EnvPool's settings: ``num_envs`` (default 1), ``batch_size`` (how many results ``recv`` waits for, by
            default all), ``seed`` (default 42; a list gives one per environment), ``env_seed``, ``num_threads``,
            ``max_episode_steps``, ``render_mode``, ``render_env_id``. ``backend`` is that of ``make_vec``. All others
            go to the environment's constructor.
    """
    if env_type not in ("gymnasium", "gym", "dm"):
        raise ValueError(f'env_type must be "gymnasium" or "dm", got {env_type!r}.')
    settings = config_of(task_id, config)
    if env_type != "dm":
        return _made(GymnasiumEnvPool, settings)
    with needs("dm"):
        from envfleet.adapters._envpool_dm import DMEnvPool
    return _made(DMEnvPool, settings)


def _made(kind: type[EnvPool], config: PoolConfig) -> EnvPool:
    fleet = fleet_for(config)
    try:
        return kind(fleet, config)
    except BaseException:
        fleet.close()
        raise


def make_gymnasium(task_id: Any, **config: Any) -> GymnasiumEnvPool:
    """Makes a pool that returns Gymnasium's tuples; settings as for :func:`make`."""
    return make(task_id, "gymnasium", **config)


make_gym = make_gymnasium


def make_dm(task_id: Any, **config: Any) -> EnvPool:
    """Makes a pool that returns ``dm_env``'s time steps; settings as for :func:`make`."""
    return make(task_id, "dm", **config)


def make_spec(task_id: Any, **config: Any) -> EnvSpec:
    """What a pool with these settings would be: its configuration and its spaces."""
    return spec_for(config_of(task_id, config))


def list_all_envs() -> list[str]:
    """The names of all environments that are registered with Gymnasium."""
    return sorted(gymnasium.registry)
