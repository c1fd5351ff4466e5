"""Episodes of a Minari dataset as rollouts, for a replay buffer to begin with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Discrete

from envfleet._optional import require
from envfleet.train.actions import EnvActions
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.replay import ReplayBuffer
from envfleet.train.collecting import Position, Rollout
from envfleet.train.config import OffPolicyConfig
from envfleet.train.networks.distributions import action_shape
from envfleet.train.observations import Observations, map_leaves, nested_like


def load_demonstrations(config: OffPolicyConfig, task: Task) -> Any:
    """The dataset that the configuration names, or None; one of another environment is refused."""
    if config.demonstrations is None:
        return None
    dataset = require("minari", "minari").load_dataset(config.demonstrations)
    for what, theirs, ours in (
        ("observations", dataset.observation_space, task.observation_space),
        ("actions", _kind(dataset.action_space), _kind(task.action_space)),
    ):
        if theirs != ours:
            raise ValueError(
                f"demonstrations={config.demonstrations!r} is a dataset with {what} {theirs}, but in this run they are "
                f"{ours}. Give a dataset that was recorded with the same environment."
            )
    return dataset


def _kind(actions: Space[Any]) -> Any:
    """What two action spaces must have in common."""
    # Bounds are not compared: here, actions are in units where -1 to 1 spans them.
    return actions if isinstance(actions, Discrete) else action_shape(actions)


def filled_replay(dataset: Any, capacity: int | None, seed: int) -> ReplayBuffer:
    """A buffer with all transitions of a dataset, or the latest `capacity` ones."""
    size = math.prod(action_shape(dataset.action_space))
    replay = ReplayBuffer(dataset.observation_space, size, 1, capacity or max(1, dataset.total_steps), seed)
    for rollout in rollouts_of(dataset, 1):
        replay.add(rollout)
    return replay


def rollouts_of(dataset: Any, num_envs: int) -> Iterator[Rollout]:
    """Each episode as what the first one of `num_envs` environments did; the others did nothing."""
    to_rows = EnvActions(dataset.action_space)
    readers = nested_like(dataset.observation_space, lambda leaf: partial(_read, leaf))
    for episode in dataset.iterate_episodes():
        seen = map_leaves(lambda read, leaf: read(leaf), readers, episode.observations)
        yield _rollout(episode, seen, to_rows.rows(episode.actions), num_envs)


def _read(space: Space[Any], values: Any) -> Any:
    array = np.asarray(values)
    if array.shape[1:] != space.shape:
        # Minari writes small pictures as JPEG and reads them as if they were not.
        raise ValueError(f"The dataset holds observations of shape {array.shape[1:]} where its space says {space}.")
    return array.astype(space.dtype, copy=False)


def _rollout(episode: Any, seen: Observations, actions: Any, num_envs: int) -> Rollout:
    steps = len(episode.rewards)

    def first_column(values: Any) -> Any:
        table = np.zeros((len(values), num_envs, *values.shape[1:]), values.dtype)
        table[:, 0] = values
        return table

    terminated = first_column(np.asarray(episode.terminations, np.bool_))
    truncated = first_column(np.asarray(episode.truncations, np.bool_))
    truncated[-1, 0] |= ~terminated[-1, 0]  # a dataset ends there, whatever it says
    shown = map_leaves(first_column, seen)
    return Rollout(
        map_leaves(lambda leaf: leaf[:-1], shown),
        first_column(actions),
        first_column(np.asarray(episode.rewards, np.float64)),
        terminated,
        truncated,
        first_column(np.ones(steps, np.bool_)),
        map_leaves(lambda leaf: leaf[-1:, 0], shown),
        Position(map_leaves(lambda leaf: leaf[-1], shown), np.zeros(num_envs, np.bool_)),
        fresh=True,
    )
