"""What a shard is given: functions that make its environments, and its rows of the block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from envfleet.vector.buffers import Array
from envfleet.vector.failures import Failure
from envfleet.vector.member import AnyEnv
from envfleet.vector.restarts import Care

EnvFn: TypeAlias = Callable[[], AnyEnv]


@dataclass(frozen=True)
class ShardRows:
    """The rows of the block that belong to a shard: views, one row an environment; ``progress`` is the shard's own."""

    observation_arrays: list[Array]
    action_arrays: list[Array]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    restarted: npt.NDArray[np.bool_]
    restarts: npt.NDArray[np.uint32]
    progress: npt.NDArray[np.uint64]
    info_rows: npt.NDArray[np.uint8]
    info_kinds: npt.NDArray[np.uint8]


def build_envs(env_fns: Iterable[EnvFn], first_index: int) -> tuple[list[AnyEnv], Failure | None]:
    """Makes the environments; after a failure those made so far are closed."""
    envs: list[AnyEnv] = []
    for index, env_fn in enumerate(env_fns, first_index):
        try:
            envs.append(env_fn())
        except Exception as error:
            failure = Failure.of(error, index, "make")
            close_envs(envs)
            return [], failure
    return envs, None


def close_envs(envs: Iterable[AnyEnv], first_index: int = 0) -> list[Failure]:
    """Closes all environments, whatever some of them raise."""
    failures = []
    for index, env in enumerate(envs, first_index):
        try:
            env.close()
        except Exception as error:
            failures.append(Failure.of(error, index, "close"))
    return failures


@dataclass(frozen=True)
class ShardTask:
    """What a shard is to run.

    Attributes:
        env_fns: One function an environment.
        first_index: The number of the first one in the fleet.
        care: What is done about those that fail.
        seeds: Those they were last reset with, one each, if this shard takes another's place.
        cause: Why it has to, or nothing.
    """

    env_fns: Sequence[EnvFn]
    first_index: int
    care: Care
    seeds: Sequence[int | None] = ()
    cause: str = ""
