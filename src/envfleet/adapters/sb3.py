"""Stable-Baselines3 on a fleet: ``as_vec_env(envs)`` and ``make_sb3_vec_env(id, n)``.

::

    from envfleet.adapters.sb3 import make_sb3_vec_env

    model = PPO("MlpPolicy", make_sb3_vec_env("LunarLander-v3", n_envs=16, seed=0))

The second takes the arguments of Stable-Baselines3's ``make_vec_env``. Under the same seeds a model ends with the same
weights as on its ``DummyVecEnv``, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from envfleet._optional import needs
from envfleet._single import spec_of
from envfleet.adapters._actions import fitting
from envfleet.adapters._fleet_check import check_same_step
from envfleet.adapters._info_rows import info_rows
from envfleet.adapters._sb3_single import SingleEnv
from envfleet.backends import BackendName
from envfleet.native.atari import AtariVectorEnv
from envfleet.native.env import NativeVectorEnv
from envfleet.native.own.environment import OwnEnvironment
from envfleet.vector.infos import Info

with needs("sb3"):
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv

    from envfleet.adapters._sb3_monitor import FleetMonitor
    from envfleet.adapters._sb3_request import checked_request

__all__ = ["FleetVecEnv", "as_vec_env", "make_sb3_vec_env"]

Indices: TypeAlias = "int | Iterable[int] | None"
EnvId: TypeAlias = "str | EnvSpec | OwnEnvironment | Callable[..., gymnasium.Env[Any, Any]]"

_TOLD_OF_RESTARTS = ("restarted", "restart_cause")


def as_vec_env(envs: VectorEnv[Any, Any, Any]) -> FleetVecEnv:
    """A fleet as Stable-Baselines3's ``VecEnv``.

    Args:
        envs: A fleet of ``envfleet.make_vec`` in SAME_STEP mode with ``copy=True``, or a vector wrapper around one.
            Closing the ``VecEnv`` closes it.

    Raises:
        TypeError: It is no fleet of envfleet.
        ValueError: Its autoreset mode is another, or it was made with ``copy=False``.
    """
    check_same_step(envs, "as_vec_env", "Stable-Baselines3")
    return FleetVecEnv(envs)


def make_sb3_vec_env(
    env_id: EnvId,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | None = None,
    wrapper_class: Callable[..., gymnasium.Env[Any, Any]] | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env_cls: type[VecEnv] | None = None,
    vec_env_kwargs: dict[str, Any] | None = None,
    monitor_kwargs: dict[str, Any] | None = None,
    wrapper_kwargs: dict[str, Any] | None = None,
    *,
    backend: BackendName | None = None,
) -> FleetVecEnv:
    """Makes a monitored ``VecEnv``, as Stable-Baselines3's ``make_vec_env`` does.

    Args:
        env_id: A registered id, a spec, a class or function that makes one environment, or an environment of your own
            from ``envfleet.native``.
        n_envs: How many.
        seed: The first reset seeds environment i with ``seed + i``; action spaces are seeded at once.
        start_index: The rank of the first environment.
        monitor_dir: Where each environment's episodes are logged, in ``<rank>.monitor.csv``; by default nowhere.
        wrapper_class: Wraps each environment, outside its ``Monitor``. Compiled environments cannot be wrapped: with
            this argument, Python ones are made.
        env_kwargs: Constructor arguments of the environments. ``render_mode`` is "rgb_array" unless given.
        vec_env_cls: ``DummyVecEnv`` stands for ``backend="sync"``, ``SubprocVecEnv`` for ``backend="process"``. Others
            are refused.
        vec_env_kwargs: The ``vector_kwargs`` of ``make_vec``, such as ``num_workers``. ``start_method``, an argument of
            ``SubprocVecEnv``, is understood too.
        monitor_kwargs: Arguments of ``Monitor``.
        wrapper_kwargs: Arguments of ``wrapper_class``.
        backend: What runs the environments, as for ``make_vec``: "auto", the default, takes compiled environments if
            there are any, and otherwise measures.
    """
    single = SingleEnv(
        spec_of(env_id),
        dict(env_kwargs or {}),
        seed,
        wrapper_class,
        dict(wrapper_kwargs or {}),
        None if monitor_dir is None else str(monitor_dir),
        dict(monitor_kwargs or {}),
    )
    request = checked_request(env_id, single, n_envs, start_index, vec_env_cls, vec_env_kwargs, backend)
    envs = request.fleet()
    try:
        vec_env = FleetVecEnv(envs)
        if wrapper_class is None:
            vec_env.monitor = request.monitor(vec_env.spec)
    except BaseException:
        envs.close()
        raise
    if seed is not None:
        vec_env.action_space.seed(seed + start_index)
    vec_env.seed(seed)
    return vec_env


@final
class FleetVecEnv(VecEnv):  # type: ignore[misc]
    """What :func:`as_vec_env` and :func:`make_sb3_vec_env` return.

    Attributes:
        fleet: What runs the environments.
        monitor: Does the work of ``Monitor`` for the whole fleet, if it is not done by one around each environment.
    """

    def __init__(self, envs: Any) -> None:
        self.fleet = envs
        self.monitor: FleetMonitor | None = None
        self._is_compiled = isinstance(envs.unwrapped, NativeVectorEnv | AtariVectorEnv)
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self.metadata = {name: value for name, value in envs.metadata.items() if name != "autoreset_mode"}
        self._takes_plain_actions = self.action_space.dtype is not None and self.action_space.dtype.kind == "f"
        self._actions: Any = None

    @property
    def spec(self) -> EnvSpec | None:
        """The spec of the environments, if they have one."""
        if self._is_compiled:
            spec: EnvSpec = self.fleet.unwrapped.spec
            return spec
        found: EnvSpec | None = self.get_attr("spec", 0)[0] if self.has_attr("spec") else None
        return found

    @property
    def envs(self) -> Any:
        """The single environments, which only a fleet in the caller's thread can show: ``backend="sync"``."""
        return self.fleet.unwrapped.envs

    # -- reset and step -------------------------------------------------------------------------------

    def reset(self) -> Any:
        """Resets all environments, with the seeds and options that were set for it; returns the observations."""
        options = [each or None for each in self._options]
        if self.monitor is not None:
            self.monitor.before_reset(self._seeds, options)
        observations, infos = self.fleet.reset(seed=self._seeds, options=options if any(options) else None)
        self.reset_infos = info_rows(infos, self.num_envs)
        if self.monitor is not None:
            self.monitor.begin_episodes()
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: Any) -> None:
        """Keeps the actions for :meth:`step_wait`: a whole step at once is the quickest."""
        plain = self._takes_plain_actions
        self._actions = actions if plain else fitting(self.action_space, actions, self.num_envs)

    def step_wait(self) -> tuple[Any, npt.NDArray[np.float32], npt.NDArray[np.bool_], list[Info]]:
        """Steps all environments; returns observations, rewards, dones and a list of infos."""
        observations, rewards, terminated, truncated, infos = self.fleet.step(self._actions)
        if self.monitor is not None:
            self.monitor.add(rewards)
        if not infos:  # and so no episode has ended
            rows: list[Info] = [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
            return observations, rewards.astype(np.float32), np.zeros(self.num_envs, np.bool_), rows
        dones = terminated | truncated
        rows = info_rows(infos, self.num_envs)
        for env, done in enumerate(dones.tolist()):
            if done:
                rows[env] = self._last_info(env, rows[env], bool(terminated[env]), bool(truncated[env]))
            else:
                rows[env]["TimeLimit.truncated"] = False
        return observations, rewards.astype(np.float32), dones, rows

    def _last_info(self, env: int, row: Info, terminated: bool, truncated: bool) -> Info:
        """The info of the episode that has ended; what else the row says belongs to the next."""
        observation, info = row.pop("final_obs"), row.pop("final_info")
        info.update({key: row[key] for key in _TOLD_OF_RESTARTS if key in row})
        self.reset_infos[env] = row
        if self.monitor is not None:
            self.monitor.end_episode(env, terminated, truncated, info)
        info["TimeLimit.truncated"] = truncated and not terminated
        info["terminal_observation"] = observation
        return info  # type: ignore[no-any-return]

    # -- attributes and methods of the environments ---------------------------------------------------

    def has_attr(self, attr_name: str) -> bool:
        """Whether all environments have this attribute."""
        if self._is_monitors(attr_name):
            return True
        if not self._is_compiled:
            return all(self.fleet.call("has_wrapper_attr", attr_name))
        try:
            self.get_attr(attr_name)
        except AttributeError:
            return False
        return True

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """This attribute of each environment; methods are returned, not called."""
        asked = self._asked(indices)
        if attr_name == "render_mode":
            return [self.fleet.render_mode for _ in asked]
        if self.monitor is not None and self._is_monitors(attr_name):
            return [getattr(self.monitor.of(env), attr_name) for env in asked]
        if self._is_compiled:
            return self.env_method(attr_name, indices=asked)
        return self.env_method("get_wrapper_attr", attr_name, indices=asked)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets this attribute of each environment to the value, also if that is a list."""
        asked = self._asked(indices)
        if self.monitor is not None and self._is_monitors(attr_name):
            for env in asked:
                setattr(self.monitor.of(env), attr_name, value)
        elif asked:
            self.fleet.set_attr(attr_name, [value] * len(asked), asked)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls this method of each environment."""
        asked = self._asked(indices)
        if self.monitor is not None and self._is_monitors(method_name):
            return [getattr(self.monitor.of(env), method_name)(*method_args, **method_kwargs) for env in asked]
        return list(self.fleet.call(method_name, *method_args, indices=asked, **method_kwargs)) if asked else []

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Whether each environment is inside such a wrapper; a fleet that is monitored as a whole counts as one."""
        asked = self._asked(indices)
        if self.monitor is not None and issubclass(Monitor, wrapper_class):
            return [True for _ in asked]
        if self._is_compiled or not asked:
            return [False for _ in asked]
        return list(self.fleet.apply(_is_inside, wrapper_class, indices=asked))

    def _asked(self, indices: Indices) -> list[int]:
        """The environments meant; -1 is the last one, as in a list."""
        everyone = range(self.num_envs)
        return [everyone[index] for index in self._get_indices(indices)]

    def _is_monitors(self, name: str) -> bool:
        return self.monitor is not None and name in self.monitor.names

    # -- frames, and the end --------------------------------------------------------------------------

    def get_images(self) -> list[Any]:
        """A frame of each environment; Nones unless they were made with ``render_mode="rgb_array"``."""
        if self.render_mode != "rgb_array":
            return [None for _ in range(self.num_envs)]
        return self.env_method("render")

    def close(self) -> None:
        """Closes the fleet and the files of its monitor."""
        self.fleet.close()
        if self.monitor is not None:
            self.monitor.close()


def _is_inside(env: Any, wrapper_class: type[Any]) -> bool:
    """Whether the environment, or one that it wraps, is such a wrapper."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, wrapper_class):
            return True
        env = env.env
    return False
