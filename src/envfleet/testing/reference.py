"""The oracle: single environments stepped by hand under each autoreset mode, and batching written plainly.

Nothing here is fast or clever and nothing is shared with the engine, so that agreeing with it means something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from envfleet.testing.envs import EnvFn

ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
INT64 = np.iinfo(np.int64)


@dataclass
class Rows:
    """One result of every environment, not batched: each list has num_envs entries."""

    observations: list[Any]
    infos: list[dict[str, Any]]
    rewards: list[float] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)


class ReferenceFleet:
    """Single environments stepped one after the other, each by the book of one autoreset mode."""

    def __init__(self, env_fns: Sequence[EnvFn], mode: AutoresetMode) -> None:
        self.envs: list[gym.Env[Any, Any]] = [env_fn() for env_fn in env_fns]
        self.mode = mode
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space
        self.finished = [False] * len(self.envs)
        self.last_observations: list[Any] = [None] * len(self.envs)

    def reset(self, seeds: Sequence[int | None] | None = None, mask: npt.NDArray[np.bool_] | None = None) -> Rows:
        """Reset the environments in the mask (default: all) and clear what was pending for them."""
        seeds = [None] * len(self.envs) if seeds is None else seeds
        infos: list[dict[str, Any]] = [{} for _ in self.envs]
        for i, env in enumerate(self.envs):
            if mask is None or mask[i]:
                observation, infos[i] = env.reset(seed=seeds[i])
                self.last_observations[i] = deepcopy(observation)
                self.finished[i] = False
        return Rows(list(self.last_observations), infos)

    def step(self, actions: Iterable[Any]) -> Rows:
        """Step every environment once, or reset it where the mode says so."""
        rows = Rows([], [])
        for i, action in enumerate(actions):
            observation, reward, terminated, truncated, info = self._step_one(i, action)
            rows.observations.append(observation)
            rows.rewards.append(float(reward))
            rows.terminated.append(bool(terminated))
            rows.truncated.append(bool(truncated))
            rows.infos.append(info)
        self.last_observations = list(rows.observations)
        return rows

    def _step_one(self, i: int, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        env = self.envs[i]
        if self.mode == AutoresetMode.NEXT_STEP and self.finished[i]:
            self.finished[i] = False
            observation, info = env.reset()
            return deepcopy(observation), 0.0, False, False, info
        assert not self.finished[i], "the test stepped a finished environment of the oracle"
        observation, reward, terminated, truncated, info = env.step(action)
        observation = deepcopy(observation)
        done = bool(terminated or truncated)
        if done and self.mode == AutoresetMode.SAME_STEP:
            final = {"final_obs": observation, "final_info": deepcopy(info)}
            observation, info = env.reset()
            return deepcopy(observation), reward, terminated, truncated, {**final, **info}
        self.finished[i] = done
        return observation, reward, terminated, truncated, info


def stack_items(space: spaces.Space[Any], items: Sequence[Any]) -> Any:
    """Batch one item an environment: arrays gain a first axis, containers stay, all else becomes a tuple."""
    if isinstance(space, spaces.Dict):
        return {key: stack_items(sub, [item[key] for item in items]) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stack_items(sub, [item[k] for item in items]) for k, sub in enumerate(space.spaces))
    if isinstance(space, ARRAY_SPACES):
        return np.array([np.asarray(item, space.dtype) for item in items])
    return tuple(items)


def stack_infos(infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Batch one info dict per environment: for each key a column over the environments and a mask `_key`."""
    batched: dict[str, Any] = {}
    for key in {key: None for info in infos for key in info}:
        present = {i: info[key] for i, info in enumerate(infos) if key in info}
        batched[key] = _column(key, present, len(infos))
        batched[f"_{key}"] = np.array([i in present for i in range(len(infos))])
    return batched


def _column(key: str, present: dict[int, Any], num_envs: int) -> Any:
    values = list(present.values())
    if key != "final_obs":
        if all(isinstance(value, dict) for value in values):
            return stack_infos([present.get(i, {}) for i in range(num_envs)])
        dtypes = [_number_dtype(value) for value in values]
        if all(dtype is not None for dtype in dtypes):
            return _filled(np.zeros(num_envs, np.result_type(*filter(None, dtypes))), present)
        if all(isinstance(value, np.ndarray) for value in values) and len({v.shape for v in values}) == 1:
            dtype = np.result_type(*(value.dtype for value in values))
            return _filled(np.zeros((num_envs, *values[0].shape), dtype), present)
    return _filled(np.full(num_envs, None, object), present)


def _number_dtype(value: Any) -> np.dtype[Any] | None:
    """Return the dtype of a number or boolean, None for everything else and for integers beyond 64 bits."""
    if isinstance(value, (np.number, np.bool_)):
        return value.dtype
    if type(value) is int:
        return np.dtype(np.int64) if INT64.min <= value <= INT64.max else None
    return {bool: np.dtype(np.bool_), float: np.dtype(np.float64)}.get(type(value))


def _filled(column: np.ndarray[Any, Any], present: dict[int, Any]) -> np.ndarray[Any, Any]:
    for i, value in present.items():
        column[i] = value
    return column
