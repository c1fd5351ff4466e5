"""What environments have gone through since their last reset, kept by the caller.

A lost process takes all of its environments along, the innocent too. Those are rebuilt in the new one: begun again as
they were, and given the same actions again. One that shows all that it had shown goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet.vector.engine import Options
from envfleet.vector.replay import Replay
from envfleet.vector.share import ShardRows

Rows: TypeAlias = npt.NDArray[np.intp]

_ROOM = 32 * 2**20
"""Bytes for the actions of all environments. Only what is written takes memory."""

_LONGEST = 20_000
"""Steps, beyond which a replay would keep everybody waiting for too long."""

_ALL = slice(None)


@final
class Replays:
    """The log of all environments of a fleet. ``block`` holds their rows."""

    def __init__(self, block: ShardRows) -> None:
        self._block = block
        num_envs = len(block.rewards)
        a_step = sum(array.nbytes for array in block.action_arrays)
        self._room = min(_LONGEST, _ROOM // max(a_step, 1))
        self._actions = [np.empty((num_envs, self._room + 1, *a.shape[1:]), a.dtype) for a in block.action_arrays]
        # As long as the room is, nothing is known: an episode was too long, or something else cannot be repeated.
        self._lengths = np.full(num_envs, self._room, np.intp)
        self._episodes = np.zeros(num_envs, np.uint64)
        self._ended = np.zeros(num_envs, np.bool_)
        self._digests = np.zeros(num_envs, np.uint64)
        # Kept together with the actions that led there, whether or not the user was ever given it: in the block it may
        # be overwritten by one that is at work.
        self._shown = [np.zeros_like(array) for array in block.observation_arrays]
        self._everyone = np.arange(num_envs)
        self._options: dict[int, Options] = {}
        self._options_to_come: dict[int, Options] = {}

    def expect_resets(self, options: Mapping[int, Options]) -> None:
        """These environments were asked to reset."""
        self._options_to_come.update(options)

    def note(self, rows: Rows | slice = _ALL) -> None:
        """These environments have done what they were asked for; the block shows what came of it."""
        block, lengths = self._block, self._lengths
        for log, actions in zip(self._actions, block.action_arrays, strict=True):
            log[self._everyone[rows], lengths[rows]] = actions[rows]
        lengths[rows] = np.minimum(lengths[rows] + 1, self._room)
        for shown, observations in zip(self._shown, block.observation_arrays, strict=True):
            shown[rows] = observations[rows]
        self._ended[rows] = block.terminated[rows] | block.truncated[rows]
        self._digests[rows] = block.digests[rows]
        begun = block.episodes[rows] != self._episodes[rows]
        if begun.any():
            self._begin(self._everyone[rows][begun])
        restarted = block.restarted[rows]
        if restarted.any():
            self.forget(self._everyone[rows][restarted])

    def _begin(self, rows: Rows) -> None:
        self._episodes[rows] = self._block.episodes[rows]
        self._lengths[rows] = 0
        for row in rows.tolist():
            self._options[row] = self._options_to_come.pop(row, None)

    def forget(self, rows: Any) -> None:
        """These cannot be rebuilt, until they begin another episode."""
        self._lengths[rows] = self._room

    def of(self, row: int) -> Replay | None:
        """What brings an environment back to where it is, or was before it was set to work; None if that is unknown."""
        length = int(self._lengths[row])
        if length >= self._room or self._block.touched[row]:
            return None
        return Replay(
            int(self._episodes[row]),
            self._options.get(row),
            [log[row, :length].copy() for log in self._actions],
            bool(self._ended[row]),
            [array[row].copy() for array in self._shown],
            int(self._digests[row]),
        )
