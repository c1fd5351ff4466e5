"""EnvPool's settings, and the fleet that they ask for."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from envfleet._single import make_env, spec_of
from envfleet.backends import BackendName
from envfleet.errors import UnsupportedError
from envfleet.make import make_vec
from envfleet.native.atari import has_atari
from envfleet.native.env import has_native
from envfleet.vector.arguments import positive_integer, seeds
from envfleet.vector.vector_env import FleetVectorEnv

_DEFAULT_SEED = 42
_NO_PINNING = -1
_ATARI_NAMES = {"frame_skip": "frameskip", "gray_scale": "grayscale", "reward_clip": "reward_clipping"}
"""EnvPool's names of arguments that ale-py calls otherwise."""


@final
@dataclass(frozen=True)
class PoolConfig:
    """A pool's settings, checked.

    Attributes:
        task_id: What to make, as ``make_vec`` takes it.
        spec: Its spec.
        num_envs: How many environments.
        batch_size: How many results ``recv`` waits for.
        seed: The seed as given.
        env_seeds: One seed per environment.
        num_threads: How many threads or workers step them; 0 for as many as pay off.
        backend: What runs them.
        render_env_id: Which environment ``render`` shows unless told otherwise.
        env_kwargs: Constructor arguments.
    """

    task_id: Any
    spec: GymnasiumSpec
    num_envs: int
    batch_size: int
    seed: int
    env_seeds: list[int | None]
    num_threads: int
    backend: BackendName
    render_env_id: int
    env_kwargs: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """What EnvPool shows as ``config``."""
        limit = self.env_kwargs.get("max_episode_steps", self.spec.max_episode_steps)
        return {
            **self.env_kwargs,
            "num_envs": self.num_envs,
            "batch_size": self.batch_size,
            "num_threads": self.num_threads,
            "max_num_players": 1,
            "thread_affinity_offset": _NO_PINNING,
            "seed": self.seed,
            "env_seed": self.env_seeds,
            "gym_reset_return_info": True,
            "max_episode_steps": limit,
            "reward_threshold": self.spec.reward_threshold,
        }


@final
@dataclass(frozen=True)
class EnvSpec:
    """What a pool is: EnvPool's ``spec``.

    Attributes:
        config: The settings, as attributes.
        observation_space: Of one environment.
        action_space: Of one environment.
        reward_threshold: The mean return from which the task counts as solved, or None.
    """

    config: Any
    observation_space: Space[Any]
    action_space: Space[Any]
    reward_threshold: float | None

    @staticmethod
    def of(config: PoolConfig, observation_space: Space[Any], action_space: Space[Any]) -> EnvSpec:
        """The spec of a pool with these settings and spaces."""
        shown = config.as_dict()
        attributes = namedtuple("Config", shown, rename=True)(*shown.values())
        return EnvSpec(attributes, observation_space, action_space, config.spec.reward_threshold)


def config_of(task_id: Any, given: Mapping[str, Any]) -> PoolConfig:
    """Checks EnvPool's settings."""
    rest = dict(given)
    _refuse_unknown_ways(rest)
    spec = spec_of(_known_name(task_id))
    num_envs = positive_integer("num_envs", rest.pop("num_envs", 1))
    seed, env_seeds = _checked_seeds(rest, num_envs)
    return PoolConfig(
        task_id=task_id if not isinstance(task_id, str) else _known_name(task_id),
        spec=spec,
        num_envs=num_envs,
        batch_size=_checked_batch_size(rest.pop("batch_size", None) or num_envs, num_envs),
        seed=seed,
        env_seeds=env_seeds,
        num_threads=int(rest.pop("num_threads", 0)),
        backend=rest.pop("backend", "auto"),
        render_env_id=int(rest.pop("render_env_id", 0)),
        env_kwargs=_atari_arguments(rest) if has_atari(spec) else rest,
    )


def _refuse_unknown_ways(rest: dict[str, Any]) -> None:
    for name, only in (
        ("thread_affinity_offset", _NO_PINNING),
        ("max_num_players", 1),
        ("gym_reset_return_info", True),
        ("from_pixels", False),
    ):
        if rest.pop(name, only) != only:
            raise UnsupportedError(f"Pools of envfleet know {name}={only!r} only: leave it out.")
    if rest.get("render_mode") == "human":
        raise UnsupportedError("Pools of envfleet draw to arrays: use render_mode='rgb_array'.")


def _known_name(task_id: Any) -> Any:
    """EnvPool names Atari games without their namespace."""
    if not isinstance(task_id, str) or task_id in gymnasium.registry or "/" in task_id:
        return task_id
    try:
        import ale_py  # noqa: F401  importing it registers its games
    except ModuleNotFoundError:
        return task_id
    return f"ALE/{task_id}" if f"ALE/{task_id}" in gymnasium.registry else task_id


def _checked_seeds(rest: dict[str, Any], num_envs: int) -> tuple[int, list[int | None]]:
    seed, each = rest.pop("seed", _DEFAULT_SEED), rest.pop("env_seed", None)
    if each is not None and len(each):
        return int(seed), seeds(list(each), num_envs)
    if isinstance(seed, Sequence | np.ndarray):
        return 0, seeds(list(seed), num_envs)
    return int(seed), seeds(seed, num_envs)


def _checked_batch_size(batch_size: Any, num_envs: int) -> int:
    if positive_integer("batch_size", batch_size) > num_envs:
        raise ValueError(f"batch_size must be at most num_envs={num_envs}, got {batch_size!r}.")
    return int(batch_size)


def _atari_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Those of ale-py, with EnvPool's defaults: no actions repeated at random, no rewards clipped."""
    renamed = {_ATARI_NAMES.get(name, name): value for name, value in given.items()}
    steps = renamed.pop("max_episode_steps", None)
    if steps is not None:
        renamed["max_num_frames_per_episode"] = steps * renamed.get("frameskip", 4)
    return {"repeat_action_probability": 0.0, "reward_clipping": False, **renamed}


def fleet_for(config: PoolConfig) -> FleetVectorEnv:
    """A fleet in NEXT_STEP mode, which is EnvPool's."""
    task_id, env_kwargs, backend = config.task_id, config.env_kwargs, config.backend
    if has_atari(config.spec):
        if backend in ("auto", "native") and config.batch_size == config.num_envs:
            return make_vec(task_id, config.num_envs, "native", _threads("threads", config), **env_kwargs)
        # ale-py steps all games together: to be stepped one by one, each has a vector environment of its own
        task_id, env_kwargs = partial(_SingleGame, config.spec, env_kwargs), {}
        backend = "process" if backend in ("auto", "native") else backend
    compiled = backend == "native" or (backend == "auto" and has_native(config.spec))
    vector_kwargs = _threads("threads" if compiled else "num_workers", config) if backend != "sync" else {}
    return make_vec(task_id, config.num_envs, backend, vector_kwargs, first_ready=config.batch_size, **env_kwargs)


def _threads(name: str, config: PoolConfig) -> dict[str, Any]:
    return {name: min(config.num_threads, config.num_envs)} if config.num_threads > 0 else {}


def spec_for(config: PoolConfig) -> EnvSpec:
    """The spec of a pool, without the pool."""
    if has_atari(config.spec):
        with make_vec(config.task_id, 1, "native", **config.env_kwargs) as fleet:
            return EnvSpec.of(config, fleet.single_observation_space, fleet.single_action_space)
    env = make_env(config.spec, config.env_kwargs, (), {})
    spec = EnvSpec.of(config, env.observation_space, env.action_space)
    env.close()
    return spec


@final
class _SingleGame(gymnasium.Env[Any, Any]):
    """One Atari game with ale-py's own preprocessing: a vector environment of one."""

    def __init__(self, spec: GymnasiumSpec, env_kwargs: dict[str, Any]) -> None:
        self._games = make_vec(spec, 1, "native", {"threads": 1}, **env_kwargs)
        self.observation_space = self._games.single_observation_space
        self.action_space = self._games.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins a game."""
        observations, infos = self._games.reset(seed=seed, options=options)
        return observations[0], _row(infos)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Goes on with it."""
        observations, rewards, terminated, truncated, infos = self._games.step(np.array([action]))
        return observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), _row(infos)

    def close(self) -> None:
        """Ends it."""
        self._games.close()


def _row(infos: dict[str, Any]) -> dict[str, Any]:
    return {key: column[0] for key, column in infos.items() if f"_{key}" in infos}
