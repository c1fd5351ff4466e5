"""`collect`: the one loop that steps environments for training; and whole episodes, put together from its rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet.train.at_once import make_at_once
from envfleet.train.observations import Array, Observations, allocate, copied, map_leaves, stacked, write_row
from envfleet.wrappers._common import AnyVectorEnv, autoreset_mode

Policy: TypeAlias = Callable[[Observations], Array]
Rows: TypeAlias = npt.NDArray[np.intp]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Position:
    """Where a fleet stands between two steps.

    Attributes:
        observations: what the environments show now, [num_envs, ...].
        resetting: environments whose next step only resets them (NEXT_STEP autoreset), bool[num_envs].
        fresh: whether all environments were reset to get here.
        starting: environments that show the first observation of an episode, bool[num_envs]; None if nobody knows.
    """

    observations: Observations
    resetting: BoolArray
    fresh: bool = False
    starting: BoolArray | None = None


@dataclass(frozen=True, eq=False)
class Rollout:
    """What happened in some steps of all environments; arrays are [steps, num_envs, ...].

    Attributes:
        observations: what the policy saw.
        actions: what it did.
        rewards: what came of it, float64.
        terminated: the episode ended by itself, bool.
        truncated: the episode was cut off, by a time limit for instance, bool.
        valid: False for rows that are no transition, but the reset of an environment (NEXT_STEP autoreset) or its
            restart after a failure: the policy's action led nowhere there, so that row must enter no loss and no
            statistic.
        final_observations: the last observations of the episodes that ended, [k, ...], in the order of
            `np.nonzero(rollout.done)`.
        end: where the fleet stood afterwards; the next rollout starts there.
        dropped: rows that were taken out because their episode is not to be learnt from (`valid` is False there too),
            bool; None if there are none.
        fresh: whether all environments were reset before it, so that it does not begin where the one before ended.
        restarted: rows in which an environment was made again after a failure, bool; None if there are none. They are
            truncated, and their final observation is what the policy saw: the episode ended before this row.
        final_infos: by name, what the last infos of the episodes that ended say, float64[k], in the order of
            `final_observations`; NaN where they say nothing.
        resets: where the policy saw the first observation of an episode, bool; None if it was not told.
        restart_causes: of environments that were made again after a failure: their numbers, and why.
    """

    observations: Observations
    actions: Array
    rewards: npt.NDArray[np.float64]
    terminated: BoolArray
    truncated: BoolArray
    valid: BoolArray
    final_observations: Observations
    end: Position
    dropped: BoolArray | None = None
    fresh: bool = False
    restarted: BoolArray | None = None
    final_infos: Mapping[str, FloatArray] = field(default_factory=dict)
    resets: BoolArray | None = None
    restart_causes: tuple[tuple[int, str], ...] = ()

    @property
    def done(self) -> BoolArray:
        """Where an episode ended, bool[steps, num_envs]."""
        return self.terminated | self.truncated

    @property
    def transitions(self) -> int:
        """The number of transitions: rows that are valid."""
        return int(np.count_nonzero(self.valid))

    @property
    def next_observations(self) -> Observations:
        """What each action led to; where an episode ended that is its final observation."""

        def shifted(along: Array, end: Array, finals: Array) -> Array:
            following = np.concatenate([along[1:], end[None]])
            following[self.done] = finals
            return following

        found: Observations = map_leaves(shifted, self.observations, self.end.observations, self.final_observations)
        return found


def begin(envs: AnyVectorEnv, seed: int | None = None) -> Position:
    """Reset all environments: the position the first rollout starts from."""
    observations, _ = envs.reset(seed=seed)
    none, every = np.zeros(envs.num_envs, dtype=np.bool_), np.ones(envs.num_envs, dtype=np.bool_)
    return Position(copied(observations), none, fresh=True, starting=every)


def collect(
    envs: AnyVectorEnv,
    policy: Policy | Callable[..., Array],
    steps: int,
    start: Position,
    info_names: Sequence[str] = (),
    *,
    tell_resets: bool = False,
) -> Rollout:
    """Let `policy` act for `steps` steps in every environment.

    Native environments and a policy with a compiled form do so in one call, with the same numbers.

    Args:
        envs: a vector environment with NEXT_STEP or SAME_STEP autoreset.
        policy: from a batch of observations [num_envs, ...] to a batch of actions.
        steps: how many, 1 or more.
        start: `begin(envs)`, or the end of the rollout before.
        info_names: what to keep of an episode's last info: entries that are numbers or bools, such as "is_success".
        tell_resets: call `policy(observations, resets=...)`, which says whose observations are the first of an episode,
            bool[num_envs], and keep that in the rollout: for policies that remember.
    """
    same_step = _resets_in_same_step(envs)
    rollout = None if tell_resets else _collected_at_once(envs, policy, steps, start, info_names)
    if rollout is not None:
        return rollout
    record = _Record(envs, steps, info_names)
    observations, resetting, starting = start.observations, start.resetting, start.starting
    act: Any = policy
    for step in range(steps):
        write_row(record.observations, step, observations)
        actions = act(observations, resets=record.note_starts(step, starting)) if tell_resets else act(observations)
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        record.write(step, actions, rewards, terminated, truncated, resetting)
        done = terminated | truncated
        if done.any():
            ended = np.flatnonzero(done)
            record.finals.extend(infos["final_obs"][ended] if same_step else _rows(observations, ended))
            record.note_ends(step, ended, infos)
        starting = done if same_step else resetting
        if not same_step:
            resetting = done
    return record.rollout(Position(copied(observations), resetting, starting=starting), fresh=start.fresh)


def _collected_at_once(
    envs: AnyVectorEnv, policy: Callable[..., Array], steps: int, start: Position, info_names: Sequence[str]
) -> Rollout | None:
    """The same rollout by one call of compiled code; None if that cannot be."""
    stretch = make_at_once(envs, policy, steps, start.observations, info_names)
    if stretch is None:
        return None
    observations, actions, rewards, terminated, truncated, valid = stretch.arrays
    if stretch.made < steps:
        envs.step(policy(observations[stretch.made]))  # raises what is wrong with it
    same_step = _resets_in_same_step(envs)
    done = terminated[-1] | truncated[-1]
    resetting, starting = (start.resetting, done) if same_step else (done, ~valid[-1])
    unknown = np.full(len(stretch.final_observations), np.nan)
    return Rollout(
        observations[:-1],
        actions,
        rewards,
        terminated,
        truncated,
        valid,
        stretch.final_observations,
        Position(observations[-1].copy(), resetting, starting=starting),
        fresh=start.fresh,
        final_infos={name: np.asarray(stretch.final_infos.get(name, unknown), np.float64) for name in info_names},
    )


class _Record:
    """The arrays a rollout is written into."""

    def __init__(self, envs: AnyVectorEnv, steps: int, info_names: Sequence[str]) -> None:
        shape = (steps, envs.num_envs)
        self._space = envs.single_observation_space
        self.observations = allocate(self._space, shape)
        self._actions: Array | None = None
        self._rewards = np.zeros(shape)
        self._terminated, self._truncated, self._valid = (np.zeros(shape, dtype=np.bool_) for _ in range(3))
        self.finals: list[Any] = []
        self._final_infos: dict[str, list[float]] = {name: [] for name in info_names}
        self._restarted: BoolArray | None = None
        self._restart_causes: list[tuple[int, str]] = []
        self._resets: BoolArray | None = None

    def note_starts(self, step: int, starting: BoolArray | None) -> BoolArray:
        """Note whose observations are the first of an episode, which is returned."""
        if starting is None:
            raise ValueError("collect(tell_resets=True) must start where a rollout ended, or at begin(envs).")
        if self._resets is None:
            self._resets = np.zeros(self._valid.shape, dtype=np.bool_)
        self._resets[step] = starting
        return starting

    def write(
        self,
        step: int,
        actions: Array,
        rewards: Array,
        terminated: BoolArray,
        truncated: BoolArray,
        resetting: BoolArray,
    ) -> None:
        """Note one step of all environments."""
        if self._actions is None:
            # Kept as the policy gave them: it will be asked about exactly these numbers again.
            self._actions = np.zeros((len(self._rewards), *actions.shape), dtype=actions.dtype)
        self._actions[step] = actions
        self._rewards[step] = rewards
        self._terminated[step] = terminated
        self._truncated[step] = truncated
        self._valid[step] = ~resetting

    def note_ends(self, step: int, ended: Rows, infos: Mapping[str, Any]) -> None:
        """Note what the infos say about the episodes that ended in one step."""
        for name, values in self._final_infos.items():
            values.extend(final_info(infos, name, ended).tolist())
        restarted = restarted_among(infos, ended)
        if len(restarted):
            if self._restarted is None:
                self._restarted = np.zeros(self._valid.shape, dtype=np.bool_)
            self._restarted[step, restarted] = True
            self._valid[step, restarted] = False
            self._restart_causes += causes_of(infos, restarted)

    def rollout(self, end: Position, *, fresh: bool) -> Rollout:
        """The finished record."""
        assert self._actions is not None, "a rollout has at least one step"
        return Rollout(
            self.observations,
            self._actions,
            self._rewards,
            self._terminated,
            self._truncated,
            self._valid,
            stacked(self._space, self.finals),
            end,
            fresh=fresh,
            restarted=self._restarted,
            final_infos={name: np.array(values, np.float64) for name, values in self._final_infos.items()},
            resets=self._resets,
            restart_causes=tuple(self._restart_causes),
        )


def restarted_among(infos: Mapping[str, Any], ended: Rows) -> Rows:
    """Those of some environments, whose episodes have ended, that were made again after a failure."""
    if "restart_cause" not in infos:  # an environment of the user's may have an info called "restarted"
        return ended[:0]
    restarted: Rows = ended[np.asarray(infos["restarted"], np.bool_)[ended]]
    return restarted


def causes_of(infos: Mapping[str, Any], restarted: Rows) -> list[tuple[int, str]]:
    """Why environments were made again: their rows, and the causes in a line each."""
    return [(int(row), " ".join(str(infos["restart_cause"][row]).split())) for row in restarted]


def final_info(infos: Mapping[str, Any], name: str, ended: Rows) -> FloatArray:
    """What the last infos of episodes say under `name`, float64[len(ended)]; NaN where that is no number."""
    source = infos.get("final_info", infos)
    column, known = source.get(name), source.get(f"_{name}")
    values = np.full(len(ended), np.nan)
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "biuf":
        there = ended if known is None else ended[known[ended]]
        values[np.isin(ended, there)] = column[there]
    return values


def _resets_in_same_step(envs: AnyVectorEnv) -> bool:
    mode = autoreset_mode(envs)
    if mode is AutoresetMode.DISABLED:
        raise ValueError(
            "collect() needs environments that reset themselves, got autoreset_mode DISABLED; "
            "make them with AutoresetMode.SAME_STEP or AutoresetMode.NEXT_STEP."
        )
    return mode is AutoresetMode.SAME_STEP


def _rows(observations: Any, indices: npt.NDArray[np.intp]) -> list[Any]:
    if isinstance(observations, (dict, tuple)):
        picked = map_leaves(lambda leaf: leaf[indices], observations)
        return [map_leaves(lambda leaf, k=k: leaf[k], picked) for k in range(len(indices))]
    return list(observations[indices])


@dataclass(frozen=True)
class Episode:
    """One finished episode: the undiscounted sum of its rewards, its steps, and numbers of its last info by name."""

    episode_return: float
    length: int
    infos: Mapping[str, float] = field(default_factory=dict)


_ALL = slice(None)


class EpisodeTracker:
    """Adds up rewards per environment until episodes end.

    It works on rollouts and not step by step, so that statistics cost nothing while environments wait.
    """

    def __init__(self, num_envs: int) -> None:
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)

    def restart(self, envs: Rows | slice = _ALL) -> None:
        """Forget the episodes under way: all environments, or the given ones, were reset."""
        self._returns[envs] = 0
        self._lengths[envs] = 0

    def finished(self, rollout: Rollout, checked: Rollout | None = None) -> list[Episode]:
        """The episodes that ended in `rollout`, in the order in which they ended.

        One that a failure cut off is none: its return would be that of a part.

        Args:
            rollout: as it was collected.
            checked: the same without episodes that are not to count, if there are any.
        """
        counted = rollout if checked is None else checked
        returns = np.cumsum(np.where(counted.valid, counted.rewards, 0.0), axis=0)
        lengths = np.cumsum(counted.valid, axis=0)
        episodes = []
        for number, (step, env) in enumerate(zip(*np.nonzero(rollout.done), strict=True)):
            if counted.done[step, env] and (rollout.restarted is None or not rollout.restarted[step, env]):
                total, length = self._returns[env] + returns[step, env], self._lengths[env] + lengths[step, env]
                infos = {name: float(column[number]) for name, column in rollout.final_infos.items()}
                episodes.append(Episode(float(total), int(length), infos))
            self._returns[env] = -returns[step, env]
            self._lengths[env] = -lengths[step, env]
        self._returns += returns[-1]
        self._lengths += lengths[-1]
        return episodes

    def state(self) -> dict[str, Any]:
        """What is needed to go on, as plain numbers."""
        return {"returns": self._returns.tolist(), "lengths": self._lengths.tolist()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state()` gave."""
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
