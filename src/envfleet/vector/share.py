"""What a shard is given: functions that make its environments, and its rows of the block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from envfleet.vector.layout import Array
from envfleet.vector.failures import Failure
from envfleet.vector.fused_env import AnyEnv
from envfleet.vector.pages import PageRows
from envfleet.vector.replay import Replay
from envfleet.vector.recovery import Care

EnvFn: TypeAlias = Callable[[], AnyEnv]


class Activity(IntEnum):
    """What a shard is doing, where that matters to whoever waits for it."""

    ANYTHING = 0
    MAKING = 1
    REBUILDING = 2


@dataclass(frozen=True)
class ShardRows:
    """The rows of the block that belong to a shard: views, one row an environment.

    Attributes:
        progress: The shard's own: the cell of its ``_core.Progress``, and one that holds an ``Activity``.
        restarts: How often each was restarted since it was last given a seed.
        rebuilt: How often each was brought back to where it was.
        touched: Whether anything but steps and resets may have changed it since it was made.
        episodes: See ``Origins``, as for ``origins``.
        digests: What each has shown since its episode began, see ``_core.Digests``.
    """

    observation_arrays: list[Array]
    pages: PageRows
    action_arrays: list[Array]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    restarted: npt.NDArray[np.bool_]
    restarts: npt.NDArray[np.uint32]
    rebuilt: npt.NDArray[np.uint32]
    touched: npt.NDArray[np.bool_]
    episodes: npt.NDArray[np.uint64]
    origins: npt.NDArray[np.uint64]
    digests: npt.NDArray[np.uint64]
    progress: npt.NDArray[np.uint64]
    parameters: npt.NDArray[np.float64]
    streams: npt.NDArray[np.uint64]
    info_rows: npt.NDArray[np.uint8]
    info_kinds: npt.NDArray[np.uint8]


def split(num_envs: int, shards: int) -> list[tuple[int, int]]:
    """Contiguous shares ``(first, last + 1)`` that differ by one environment at most."""
    edges = [num_envs * shard // shards for shard in range(shards + 1)]
    return list(pairwise(edges))


def build_envs(
    env_fns: Iterable[EnvFn], first_index: int, announce: Callable[[int], None] = lambda _: None
) -> tuple[list[AnyEnv], Failure | None]:
    """Makes the environments, each once it was announced; after a failure those made so far are closed."""
    envs: list[AnyEnv] = []
    for index, env_fn in enumerate(env_fns, first_index):
        announce(index)
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
        replays: By row, how to bring those back to where they were that need not be restarted then.
        notes_digests: Whether what its environments show is noted, so that they can be rebuilt elsewhere.
    """

    env_fns: Sequence[EnvFn]
    first_index: int
    care: Care
    seeds: Sequence[int | None] = ()
    cause: str = ""
    replays: Mapping[int, Replay] = field(default_factory=dict)
    notes_digests: bool = False
