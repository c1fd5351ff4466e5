"""Tianshou 2 on a fleet: ``as_venv(envs)`` and ``make_venv(id, n)``.

::

    from envfleet.adapters.tianshou import make_venv

    collector = Collector(algorithm, make_venv("LunarLander-v3", 16), VectorReplayBuffer(20_000, 16))

Under the same seeds a collector gathers the same data as on Tianshou's ``DummyVectorEnv``, to the bit. With
``wait_num``, ``step`` returns as soon as that many environments are ready, for ``AsyncCollector``.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from envfleet._optional import needs
from envfleet.adapters._actions import fitting
from envfleet.adapters._fleet_check import check_fleet
from envfleet.adapters._info_rows import info_rows
from envfleet.adapters._unwrapped import get_unwrapped, set_unwrapped
from envfleet.backends import BackendName
from envfleet.errors import UnsupportedError
from envfleet.make import make_vec
from envfleet.native.atari import AtariVectorEnv
from envfleet.native.env import NativeVectorEnv
from envfleet.native.own.environment import OwnEnvironment
from envfleet.vector.vector_env import FleetVectorEnv

with needs("tianshou"):
    from tianshou.env import BaseVectorEnv

__all__ = ["FleetVenv", "as_venv", "make_venv"]

Ids: TypeAlias = "int | Sequence[int] | npt.NDArray[np.integer[Any]] | None"
EnvId: TypeAlias = "str | EnvSpec | OwnEnvironment | Callable[..., gymnasium.Env[Any, Any]]"
Rows: TypeAlias = "npt.NDArray[np.int64]"
Arrays: TypeAlias = "tuple[npt.NDArray[Any], ...]"
"""Observations, rewards, terminated, truncated and infos, an entry per environment."""


def as_venv(envs: FleetVectorEnv, timeout: float | None = None) -> FleetVenv:
    """A fleet as Tianshou's vector environment.

    Args:
        envs: A fleet of ``envfleet.make_vec`` in DISABLED mode with ``copy=True``. Its ``first_ready`` is Tianshou's
            ``wait_num``. Closing the vector environment closes it.
        timeout: Seconds after which ``step`` returns what is ready, if that is anything at all, as Tianshou means it.

    Raises:
        TypeError: It is no fleet of envfleet.
        ValueError: Its autoreset mode is another, or it was made with ``copy=False``.
        UnsupportedError: Its observations are tuples, which Tianshou does not take.
    """
    why = "Tianshou resets environments itself when their episodes have ended, which is DISABLED"
    check_fleet(envs, "as_venv", "Tianshou", why, (AutoresetMode.DISABLED,))
    if isinstance(envs.single_observation_space, spaces.Tuple):
        raise UnsupportedError(
            f"Tianshou takes no tuples as observations, got {envs.single_observation_space}. Make it a Dict space."
        )
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be more than 0 seconds, or None to wait for wait_num, got {timeout!r}.")
    return FleetVenv(envs, timeout)


def make_venv(
    env_id: EnvId,
    num_envs: int = 1,
    wait_num: int | None = None,
    timeout: float | None = None,
    *,
    backend: BackendName = "auto",
    env_kwargs: Mapping[str, Any] | None = None,
    vector_kwargs: Mapping[str, Any] | None = None,
) -> FleetVenv:
    """Makes a fleet and returns it as Tianshou's vector environment.

    Args:
        env_id: A registered id, a spec, a class or function that makes one environment, or an environment of your own
            from ``envfleet.native``.
        num_envs: How many.
        wait_num: How many environments ``step`` waits for; by default all.
        timeout: As for :func:`as_venv`.
        backend: What runs the environments, as for ``make_vec``: "auto", the default, takes compiled environments if
            there are any, and otherwise measures.
        env_kwargs: Constructor arguments of the environments.
        vector_kwargs: Further arguments of the fleet, such as ``num_workers``.
    """
    of_fleet = {"autoreset_mode": AutoresetMode.DISABLED, **(vector_kwargs or {})}
    envs = make_vec(env_id, num_envs, backend, of_fleet, first_ready=wait_num or num_envs, **(env_kwargs or {}))
    try:
        return as_venv(envs, timeout)
    except BaseException:
        envs.close()
        raise


@final
class FleetVenv(BaseVectorEnv):  # type: ignore[misc]
    """What :func:`as_venv` and :func:`make_venv` return.

    Attributes:
        fleet: What runs the environments.
        env_num: How many there are.
        wait_num: How many ``step`` waits for.
        timeout: For how many seconds it does.
        is_async: Whether it waits for less than all.
        waiting_id: The environments at work.
        ready_id: All others.
        is_closed: Whether ``close`` was called.
    """

    def __init__(self, envs: Any, timeout: float | None) -> None:  # its base class would make workers
        self.fleet = envs
        self.env_num: int = envs.num_envs
        self.wait_num: int = envs.first_ready
        self.timeout = timeout
        self.is_async = self.wait_num != self.env_num or timeout is not None
        self.waiting_id: list[int] = []
        self.ready_id = list(range(self.env_num))
        self.is_closed = False
        self._is_compiled = isinstance(envs, NativeVectorEnv | AtariVectorEnv)
        self._everyone = np.arange(self.env_num)
        self._action_spaces = [deepcopy(envs.single_action_space) for _ in range(self.env_num)]
        self._early: list[Arrays] = []
        """Results that came before they were asked for: steps that ended while a reset was waited for."""

    # -- reset and step -------------------------------------------------------------------------------

    def reset(self, env_id: Ids = None, **kwargs: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Resets the given environments, or all; returns observations and infos in the order of ``env_id``.

        Args:
            env_id: Which ones. None of them may be at work.
            **kwargs: ``seed`` and ``options``, which each environment gets as they are: an int seeds all alike.
        """
        ids = self._ready(env_id)
        seed, options = _of_reset(**kwargs)
        seeds, of_each = [seed] * len(ids), [options] * len(ids)
        if self._is_everyone(ids):
            observations, infos = self.fleet.reset(seed=seeds, options=of_each)
            return self._observation_array(observations), _array_of(info_rows(infos, len(ids)))
        self.fleet.async_reset(env_ids=ids, seed=seeds, options=of_each)
        observations, _, _, _, rows = self._results_of(ids)
        for info in rows:
            del info["env_id"]
        return observations, rows

    def step(self, action: Any, id: Ids = None) -> Arrays:  # noqa: A002  Tianshou's name
        """Steps the given environments, or all.

        Args:
            action: One for each of them. None is allowed if ``is_async``: then no new step is begun.
            id: Which ones, in the order of the actions. With ``action=None``: which ones to wait for; by default the
                first that are ready.

        Returns:
            Observations, rewards, terminated, truncated, and an array of infos, each with its ``env_id``: in the order
            of ``id``, or, if ``is_async``, of those that were ready first.
        """
        if self.is_async and action is None:
            return self._given_back(self._first_ready() if id is None else self._results_of(self._wrapped(id)))
        if action is None:
            raise ValueError("step() needs actions; None is for vector environments with a wait_num or a timeout.")
        ids = self._ready(id)
        if len(action) != len(ids):
            raise ValueError(f"step() needs one action per environment: {len(ids)}, got {len(action)}.")
        given = action if isinstance(action, np.ndarray) else np.asarray(action)
        actions = fitting(self.fleet.single_action_space, given, len(ids))
        if self.is_async:
            self.fleet.send(actions, ids)
            self.waiting_id.extend(ids.tolist())
            self.ready_id = [env for env in self.ready_id if env not in self.waiting_id]
            return self._given_back(self._first_ready())
        if self._is_everyone(ids):
            return self._arrays(ids, self.fleet.step(actions))
        self.fleet.send(actions, ids)
        return self._in_order(ids, self._receive(len(ids)))

    def _first_ready(self) -> Arrays:
        """The results of ``wait_num`` environments at work, or of those that were ready when the time was up."""
        found, self._early = self._early, []
        wanted = min(self.wait_num, len(self.waiting_id)) - sum(map(_count, found))
        if wanted > 0:
            try:
                found.append(self._receive(wanted, self.timeout))
            except multiprocessing.TimeoutError:
                found.extend(self._receive_what_is_ready(wanted, at_least=0 if found else 1))
        return _joined(found)

    def _receive_what_is_ready(self, most: int, at_least: int) -> list[Arrays]:
        found: list[Arrays] = []
        for number in range(most):
            try:
                found.append(self._receive(1, None if number < at_least else 0.0))
            except multiprocessing.TimeoutError:
                break
        return found

    def _results_of(self, ids: Rows) -> Arrays:
        """The results of these environments, in this order; those of others that come earlier are kept for later."""
        found, self._early = self._early, []
        missing = set(ids.tolist()).difference(*map(_ids, found))
        others_are_at_work = bool(set(self.waiting_id).difference(*map(_ids, found)) - missing)
        while missing:
            found.append(self._receive(1 if others_are_at_work else len(missing)))
            missing.difference_update(_ids(found[-1]))
        return self._in_order(ids, _joined(found))

    def _in_order(self, ids: Rows, arrays: Arrays) -> Arrays:
        """The results of these environments, in this order; keeps those of others."""
        wanted, came = ids.tolist(), _ids(arrays)
        if came == wanted:
            return arrays
        places = {env: place for place, env in enumerate(came)}
        own = [places.pop(env) for env in wanted]
        if places:
            self._early = [_taken(arrays, list(places.values()))]
        return _taken(arrays, own)

    def _receive(self, count: int, timeout: float | None = None) -> Arrays:
        """The results of the first ``count`` that are ready."""
        fleet = self.fleet
        fleet.batch_size = count
        results = fleet.recv(timeout)
        return self._arrays(results[4]["env_id"], results)

    def _given_back(self, arrays: Arrays) -> Arrays:
        """Notes that these environments are ready."""
        ids = _ids(arrays)
        self.waiting_id = [env for env in self.waiting_id if env not in ids]
        self.ready_id.extend(ids)
        return arrays

    # -- as Tianshou has it ---------------------------------------------------------------------------

    def _wrapped(self, id: Ids) -> Rows:  # noqa: A002
        return self._everyone if id is None else np.atleast_1d(np.asarray(id)).astype(np.int64)

    def _ready(self, id: Ids) -> Rows:  # noqa: A002
        """The environments meant, of which none may be at work."""
        self._assert_is_not_closed()
        ids = self._wrapped(id)
        if self.is_async:
            self._assert_id(ids)
        return ids

    def _is_everyone(self, ids: Rows) -> bool:
        return ids is self._everyone or (len(ids) == self.env_num and bool((ids == self._everyone).all()))

    def _arrays(self, ids: Rows, results: Any) -> Arrays:
        observations, rewards, terminated, truncated, infos = results
        rows = info_rows(infos, len(ids))
        for info, env in zip(rows, ids.tolist(), strict=True):
            info["env_id"] = env
        return self._observation_array(observations), rewards, terminated, truncated, _array_of(rows)

    def _observation_array(self, observations: Any) -> npt.NDArray[Any]:
        """One array; of dicts, if observations are dicts."""
        if isinstance(observations, np.ndarray):
            return observations
        return _array_of(list(iterate(self.fleet.observation_space, observations)))

    # -- the rest -------------------------------------------------------------------------------------

    def seed(self, seed: int | Sequence[int] | None = None) -> list[list[int | None]]:
        """Resets all environments with seeds and seeds their action spaces; an int s gives environment i s + i."""
        ids = self._ready(None)
        seeds: list[int | None] = [None] * len(ids)
        if seed is not None:
            seeds = [seed + env for env in ids.tolist()] if isinstance(seed, int) else list(seed)
        self.fleet.reset(seed=seeds)
        for space, own in zip(self._action_spaces, seeds, strict=True):
            space.seed(own)
        return [[own] for own in seeds]

    # What Tianshou looks up in the environments, whenever any attribute is: here these are attributes like others.
    __getattribute__ = object.__getattribute__
    metadata = property(lambda self: self.get_env_attr("metadata"))
    spec = property(lambda self: self.get_env_attr("spec"))
    action_space = property(lambda self: self.get_env_attr("action_space"))
    observation_space = property(lambda self: self.get_env_attr("observation_space"))

    def get_env_attr(self, key: str, id: Ids = None) -> list[Any]:  # noqa: A002
        """This attribute of each environment, inside its wrappers; spaces are those outside."""
        ids = self._ready(id).tolist()
        if key == "action_space":
            return [self._action_spaces[env] for env in ids]
        if key == "observation_space":
            return [self.fleet.single_observation_space for _ in ids]
        if self._is_compiled:
            return list(self.fleet.get_attr(key, ids))
        return list(self.fleet.apply(get_unwrapped, key, indices=ids))

    def set_env_attr(self, key: str, value: Any, id: Ids = None) -> None:  # noqa: A002
        """Sets this attribute of each environment to the value, also if that is a list."""
        ids = self._ready(id).tolist()
        if self._is_compiled:
            self.fleet.set_attr(key, [value] * len(ids), ids)
        else:
            self.fleet.apply(set_unwrapped, key, value, indices=ids)

    def render(self, **kwargs: Any) -> list[Any]:
        """A frame of each environment."""
        self._assert_is_not_closed()
        return list(self.fleet.call("render", **kwargs))

    def close(self) -> None:
        """Closes the fleet."""
        self._assert_is_not_closed()
        self.fleet.close()
        self.is_closed = True


def _of_reset(seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """What ``reset`` of an environment takes, and nothing else."""
    return seed, options


def _array_of(items: list[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def _ids(arrays: Arrays) -> list[int]:
    return [info["env_id"] for info in arrays[4]]


def _count(arrays: Arrays) -> int:
    return len(arrays[4])


def _joined(found: list[Arrays]) -> Arrays:
    return found[0] if len(found) == 1 else tuple(np.concatenate(columns) for columns in zip(*found, strict=True))


def _taken(arrays: Arrays, places: list[int]) -> Arrays:
    return tuple(array[places] for array in arrays)
