"""RecordEpisodeStatistics: return, length and duration of every finished episode."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet.wrappers._common import (
    AnyVectorEnv,
    BatchWrapper,
    BoolArray,
    FloatArray,
    Infos,
    Options,
    Seed,
    StepResult,
    autoreset_mode,
    check_count,
    info_dict,
    reset_envs,
)


class RecordEpisodeStatistics(BatchWrapper):
    """Report the return, length and duration of every episode in the step that ends it.

    In that step `infos[stats_key]` is `{"r": float64, "l": int64, "t": float64}`: arrays of [num_envs] with the
    undiscounted return, the number of steps and the seconds taken. `infos["_" + stats_key]`, bool[num_envs], says
    which environments finished; the entries of the others are 0. In NEXT_STEP mode the step that only resets an
    environment belongs to no episode. An episode that `reset()` cuts short is not reported. With
    `options["reset_mask"]` only these environments start a new episode, and the other episodes go on.

    Args:
        envs: a vector environment that states `metadata["autoreset_mode"]`.
        buffer_length: how many finished episodes the queues keep, at least 1.
        stats_key: the key in infos.

    Attributes:
        episode_count: how many episodes have finished.
        return_queue: the returns of the last `buffer_length` finished episodes.
        length_queue: their lengths.
        time_queue: their durations in seconds.
        episode_returns: the return of the current episode so far, per environment, float64[num_envs].
        episode_lengths: its length so far, int64[num_envs].
        episode_start_times: when it began, by `time.perf_counter`, float64[num_envs].
        prev_dones: which environments have finished and are not yet reset, bool[num_envs].
    """

    def __init__(self, envs: AnyVectorEnv, buffer_length: int = 100, stats_key: str = "episode") -> None:
        super().__init__(envs)
        length = check_count("buffer_length", buffer_length)
        if not isinstance(stats_key, str) or not stats_key:
            raise TypeError(f"stats_key must be a string that is not empty, got {stats_key!r}.")
        self._stats_key = stats_key
        self._mode = autoreset_mode(envs)
        self.episode_count = 0
        self.episode_start_times: FloatArray = np.full(self.num_envs, time.perf_counter())
        self.episode_returns: FloatArray = np.zeros(self.num_envs)
        self.episode_lengths: npt.NDArray[np.int64] = np.zeros(self.num_envs, dtype=np.int64)
        self.prev_dones: BoolArray = np.zeros(self.num_envs, dtype=np.bool_)
        self.time_queue: deque[float] = deque(maxlen=length)
        self.return_queue: deque[float] = deque(maxlen=length)
        self.length_queue: deque[int] = deque(maxlen=length)

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Any, Infos]:
        """Reset the environments (those in `options["reset_mask"]`, if given) and begin their episodes."""
        observations, infos, mask = reset_envs(self.env, seed, options)
        self._begin(mask)
        self.prev_dones[mask] = False
        return observations, infos

    def step(self, actions: Any) -> StepResult:
        """Step the environments; report the episodes that ended."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        infos = info_dict(infos, type(self).__name__)
        done = np.logical_or(terminated, truncated)
        self._begin(self.prev_dones)
        played = ~self.prev_dones
        self.episode_returns[played] += rewards[played]
        self.episode_lengths[played] += 1
        if done.any():
            infos = self._report(infos, done)
        if self._mode is AutoresetMode.SAME_STEP:
            self._begin(done)
        else:
            self.prev_dones = done
        return observations, rewards, terminated, truncated, infos

    def _begin(self, mask: BoolArray) -> None:
        self.episode_start_times[mask] = time.perf_counter()
        self.episode_returns[mask] = 0.0
        self.episode_lengths[mask] = 0

    def _report(self, infos: Infos, done: BoolArray) -> Infos:
        key, mask_key = self._stats_key, f"_{self._stats_key}"
        if key in infos or mask_key in infos:
            raise ValueError(
                f"infos already has {key!r}, so the episode statistics have no place: {sorted(infos)}. "
                "Give RecordEpisodeStatistics another stats_key, or record statistics only once."
            )
        seconds = np.round(time.perf_counter() - self.episode_start_times, 6)
        self.episode_count += int(done.sum())
        self.return_queue.extend(self.episode_returns[done].tolist())
        self.length_queue.extend(self.episode_lengths[done].tolist())
        self.time_queue.extend(seconds[done].tolist())
        statistics = {
            "r": np.where(done, self.episode_returns, 0.0),
            "l": np.where(done, self.episode_lengths, 0),
            "t": np.where(done, seconds, 0.0),
        }
        return {**infos, key: statistics, mask_key: done.copy()}
