"""Steps of a whole fleet, cut into the episodes of its environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.vector import AutoresetMode

from envfleet.adapters._info_rows import info_rows
from envfleet.vector.infos import Info
from envfleet.vector.layout import Array, cast
from envfleet.wrappers._common import BoolArray, StepResult
from envfleet.wrappers._leaves import flatten, named_leaves, unflatten

Frame: TypeAlias = "list[Array | list[Any]]"
"""One batch, leaf by leaf: an array [num_envs, ...], or a list where values have no fixed size."""

_NOBODY = -1
_NOT_THE_ENVIRONMENT_S = ("final_obs", "final_info", "restarted", "restart_cause")


@final
@dataclass(frozen=True, eq=False)
class Episode:
    """A whole episode of T steps, as Minari takes it: nested like the spaces, the leaves as lists of rows.

    Attributes:
        env: the environment's number.
        seed: of the reset that began it, or None.
        options: of the same.
        observations: T + 1 of them, the last one being the final observation.
        actions: T, in the dtype of their space.
        rewards: T.
        terminations: T.
        truncations: T.
        infos: for each entry that all T + 1 infos have, the list of its values; None if infos are not recorded.
    """

    env: int
    seed: int | None
    options: dict[str, Any] | None
    observations: Any
    actions: Any
    rewards: list[float]
    terminations: list[bool]
    truncations: list[bool]
    infos: dict[str, Any] | None


@dataclass(frozen=True, eq=False)
class _Step:
    actions: Frame
    rewards: npt.NDArray[np.float64]
    terminated: BoolArray
    truncated: BoolArray
    infos: list[Info]
    """Of the step itself, one per environment; empty if they are not recorded."""


@final
class EpisodeCutter:
    """Remembers what a fleet shows and does until episodes end, in every autoreset mode.

    Batches are copied once per step. Frame t is what the environments show, step t leads from it to frame t + 1. Frames
    that no episode under way needs are forgotten.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        num_envs: int,
        mode: AutoresetMode,
        *,
        with_infos: bool,
    ) -> None:
        self._observation_space, self._action_space, self._mode = observation_space, action_space, mode
        self._num_envs, self._with_infos = num_envs, with_infos
        self._frames: list[Frame] = []
        self._first_infos: list[Info] = [{} for _ in range(num_envs)]
        self._steps: list[_Step] = []
        self._forgotten = 0
        """How many frames, and steps, came before those that are kept."""
        self._starts = np.full(num_envs, _NOBODY)
        """The frame that each environment's episode begins with, perhaps one to come."""
        self._seeds: list[int | None] = [None] * num_envs
        self._options: list[dict[str, Any] | None] = [None] * num_envs

    def reset(
        self,
        observations: Any,
        infos: Info,
        mask: BoolArray,
        seeds: Sequence[int | None],
        options: Sequence[dict[str, Any] | None],
    ) -> None:
        """The environments in `mask` were reset; what they had begun is forgotten."""
        frame = self._copied(self._observation_space, observations)
        rows = np.flatnonzero(mask).tolist()
        if self._frames:
            # Into a copy: final observations that were just recorded are views of the old one.
            shown, frame = frame, [leaf.copy() for leaf in self._frames[-1]]
            for kept, fresh in zip(frame, shown, strict=True):
                for row in rows:
                    kept[row] = fresh[row]
        self._frames[-1:] = [frame]
        first_infos = self._own_infos(infos)
        for row in rows:
            self._starts[row] = self._forgotten + len(self._frames) - 1
            self._seeds[row], self._options[row] = seeds[row], options[row]
            self._first_infos[row] = first_infos[row] if first_infos else {}

    def step(self, actions: Any, result: StepResult) -> list[Episode]:
        """All environments took a step; returns the episodes that it ended."""
        observations, rewards, terminated, truncated, infos = result
        now = self._forgotten + len(self._steps)
        acted = self._copied(self._action_space, actions)
        self._steps.append(
            _Step(
                acted, np.array(rewards), np.array(terminated), np.array(truncated), self._own_infos(infos, ended=True)
            )
        )
        self._frames.append(self._copied(self._observation_space, observations))
        first_infos = self._own_infos(infos)
        for row in np.flatnonzero(self._starts == now + 1).tolist() if first_infos else []:
            self._first_infos[row] = first_infos[row]  # this step was a reset (NEXT_STEP)
        episodes = []
        has_begun = (self._starts != _NOBODY) & (self._starts <= now)
        for row in np.flatnonzero((terminated | truncated) & has_begun).tolist():
            # What a failure cut off is no whole episode.
            if not ("restart_cause" in infos and infos["restarted"][row]):
                final = infos["final_obs"][row] if self._mode is AutoresetMode.SAME_STEP else None
                episodes.append(self._episode(row, final))
            self._begin_next(row, now, first_infos)
        self._forget()
        return episodes

    def _begin_next(self, row: int, now: int, first_infos: list[Info]) -> None:
        after = {AutoresetMode.SAME_STEP: now + 1, AutoresetMode.NEXT_STEP: now + 2}
        self._starts[row] = after.get(self._mode, _NOBODY)
        self._seeds[row] = self._options[row] = None
        if self._mode is AutoresetMode.SAME_STEP and first_infos:
            self._first_infos[row] = first_infos[row]

    def _episode(self, row: int, final: Any) -> Episode:
        start = int(self._starts[row]) - self._forgotten
        frames, steps = self._frames[start:], self._steps[start:]
        shown = [[leaf[row] for leaf in frame] for frame in frames]
        if self._mode is AutoresetMode.SAME_STEP:
            shown[-1] = self._single(final)
        acted = [[leaf[row] for leaf in step.actions] for step in steps]
        infos = [self._first_infos[row], *(step.infos[row] for step in steps)] if self._with_infos else None
        return Episode(
            row,
            self._seeds[row],
            self._options[row],
            unflatten(self._observation_space, map(list, zip(*shown, strict=True))),
            unflatten(self._action_space, map(list, zip(*acted, strict=True))),
            [float(step.rewards[row]) for step in steps],
            [bool(step.terminated[row]) for step in steps],
            [bool(step.truncated[row]) for step in steps],
            None if infos is None else _columns(infos),
        )

    def _forget(self) -> None:
        under_way = self._starts[self._starts != _NOBODY]
        latest = self._forgotten + len(self._frames) - 1
        needless = int(min([latest, *under_way.tolist()])) - self._forgotten
        # Not at every step: what is left in a list is moved.
        if needless > len(self._frames) // 2:
            del self._frames[:needless], self._steps[:needless]
            self._forgotten += needless

    def _copied(self, space: Space[Any], batch: Any) -> Frame:
        return self._leaves(space, batch, (self._num_envs,))

    def _single(self, observation: Any) -> Frame:
        return self._leaves(self._observation_space, observation, ())

    def _leaves(self, space: Space[Any], value: Any, lead: tuple[int, ...]) -> Frame:
        leaves: Frame = []
        for (path, leaf), part in zip(named_leaves(space), flatten(space, value), strict=True):
            if leaf.shape is None or leaf.dtype is None or leaf.dtype.kind not in "biuf":
                leaves.append(list(part) if lead else part)  # text, for instance
            else:
                leaves.append(np.array(cast(part, (*lead, *leaf.shape), leaf.dtype, path))[()])
        return leaves

    def _own_infos(self, infos: Info, *, ended: bool = False) -> list[Info]:
        """One dict per environment; with `ended`, that of the step and not of the reset after it."""
        if not self._with_infos:
            return []
        rows = info_rows(infos, self._num_envs)
        rows = [row["final_info"] if ended and "final_info" in row else row for row in rows]
        return [{key: value for key, value in row.items() if key not in _NOT_THE_ENVIRONMENT_S} for row in rows]


def _columns(infos: Sequence[Info]) -> dict[str, Any]:
    """The entries that all infos have, each as the list of its values; of dicts, a dict of such lists."""
    common = [key for key in infos[0] if all(key in info for info in infos)]
    columns: dict[str, Any] = {}
    for key in common:
        values = [info[key] for info in infos]
        columns[key] = _columns(values) if all(isinstance(value, dict) for value in values) else values
    return columns
