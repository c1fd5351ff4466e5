"""How an environment is brought back to where a lost one was.

A process that is lost takes all its environments with it, also those that did nothing wrong. These are rebuilt in a new
process. Each begins its episode again as it began (``EpisodeStarts``) and gets the same actions again (``Replay``).
If it shows again what it had shown before, it goes on as if nothing had happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import gymnasium
import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.vector.block import BlockRows
from envfleet.vector.engine import Options
from envfleet.vector.fleet_block import LastObservations
from envfleet.vector.fused_env import FusedEnv
from envfleet.vector.infos import info_digest
from envfleet.vector.layout import Array, SpaceLayout, as_bool, as_number
from envfleet.vector.pages import PageRows
from envfleet.vector.runtime import generator_state, global_states

Words: TypeAlias = npt.NDArray[np.uint64]

_UNKNOWN, _SEEDED, _RUNNING, _RUNNING_UNSEEDED = range(4)
_LARGEST = 2**64 - 1
_NOTHING_KNOWN = (_UNKNOWN, 0, 0, 0, 0, 0, 0)


class UnknownStartError(LookupError):
    """The way an episode began is not known, so it cannot begin again in the same way."""


@final
class EpisodeStarts:
    """Notes how the episodes of some environments began: with which seed, or from which state of the generator.

    Args:
        episodes: uint64 (n,), how many episodes each environment has begun.
        slots: uint64 (n, 2, START_WORDS), how the present episode of each began, and the one before.
    """

    def __init__(self, episodes: Words, slots: Words) -> None:
        self._episodes, self._slots = episodes, slots

    def note(self, row: int, env: gymnasium.Env[Any, Any], seed: int | None) -> None:
        """Notes how an episode begins; to be called right before the reset that begins it."""
        number = int(self._episodes[row]) + 1
        self._slots[row, number % 2] = (number, *_origin(env.unwrapped, seed))
        self._episodes[row] = number

    def restore(self, row: int, number: int, env: gymnasium.Env[Any, Any]) -> int | None:
        """Brings an environment back to where it was before the reset that began an episode.

        Returns the seed of that reset.
        """
        noted, kind, seed, *state = self._slots[row, number % 2].tolist()
        if noted != number or kind == _UNKNOWN:
            raise UnknownStartError("it has a random generator that is not Gymnasium's")
        self._episodes[row] = number
        if kind == _SEEDED:
            return int(seed)
        inner = env.unwrapped
        gymnasium.Env.reset(inner, seed=seed if kind == _RUNNING else None)  # so that np_random_seed is what it was
        inner.np_random.bit_generator.state = _as_state(state)
        return None


def _origin(env: gymnasium.Env[Any, Any], seed: int | None) -> tuple[int, ...]:
    if seed is not None:
        return (_SEEDED, seed, 0, 0, 0, 0, 0) if seed <= _LARGEST else _NOTHING_KNOWN
    try:
        bits, own_seed = env.np_random.bit_generator, env.np_random_seed
    except Exception:  # what is an environment's own affair must not make its reset fail
        return _NOTHING_KNOWN
    if type(bits) is not np.random.PCG64:
        return _NOTHING_KNOWN
    state: Any = bits.state
    seeded = own_seed is not None and 0 <= own_seed <= _LARGEST
    numbers = divmod(state["state"]["state"], 2**64) + divmod(state["state"]["inc"], 2**64)
    half = state["has_uint32"] << 32 | state["uinteger"]
    return (_RUNNING, own_seed, *numbers, half) if seeded else (_RUNNING_UNSEEDED, 0, *numbers, half)


def _as_state(words: list[int]) -> dict[str, Any]:
    upper, lower, upper_increment, lower_increment, half = words
    state, increment = upper << 64 | lower, upper_increment << 64 | lower_increment
    return generator_state(state, increment, half >> 32, half % 2**32)


LONGEST = 20.0
"""Seconds that all replays of a shard may take together, since the whole fleet waits for them."""


class DivergedError(RuntimeError):
    """A new environment does not do again what the lost one had done."""


@final
class Stage:
    """Takes what an environment shows during a replay, apart from the block.

    Args:
        layout: The layout of observations.
        arrays: Arrays of observations with the shapes and dtypes to use.
    """

    def __init__(self, layout: SpaceLayout, arrays: Sequence[Array]) -> None:
        self._arrays = [np.zeros_like(array[:1]) for array in arrays]
        self._write = layout.writer(layout.columns(self._arrays, 1), PageRows())
        self._reward, self._digest = np.zeros(1), np.zeros(1, np.uint64)
        self._digests = _core.Digests(self._arrays, self._reward, self._digest)

    def begin(self, observation: Any, info: Any) -> None:
        """Takes what a reset returned."""
        self._write(0, observation)
        self._digests.begin(0, info_digest(info))

    def show(self, observation: Any, reward: Any, terminated: bool, truncated: bool, info: Any) -> None:
        """Takes what a step returned."""
        self._write(0, observation)
        self._reward[0] = as_number(reward)
        self._digests.add(0, terminated, truncated, info_digest(info))

    @property
    def observation(self) -> list[bytes]:
        """The last observation, as the bytes of each leaf."""
        return [array.tobytes() for array in self._arrays]

    @property
    def digest(self) -> int:
        """The digest of everything that was shown, see ``_core.Digests``."""
        return int(self._digest[0])


@dataclass(frozen=True)
class Replay:
    """What brings a new environment to where a lost one was.

    Attributes:
        episode: The number of the episode, by which ``EpisodeStarts`` knows how it began.
        options: The options of the reset that began it.
        actions: The actions since then: for each leaf an array (steps, *shape).
        ended: Whether the last action ended the episode.
        observation: What the lost environment had shown last: for each leaf an array.
        digest: The digest of everything it had shown since that reset, see ``_core.Digests``.
    """

    episode: int
    options: Options
    actions: Sequence[Array]
    ended: bool
    observation: Sequence[Array]
    digest: int

    def play(
        self,
        member: FusedEnv,
        seed: int | None,
        layout: SpaceLayout,
        stage: Stage,
        go_on: Callable[[], None],
        deadline: float,
    ) -> None:
        """Repeats the episode with a new environment; a DivergedError says that it did not do what the lost one did.

        Args:
            member: The environment, brought to where the episode began.
            seed: The seed of the reset that began the episode.
            layout: The layout of actions.
            stage: Takes what the environment shows.
            go_on: Is called before the reset and before each step.
            deadline: When to give up, by ``time.monotonic()``.
        """
        if not self.digest:
            raise DivergedError("it has shown an info that cannot be compared")
        generators = global_states()
        go_on()
        stage.begin(*member.reset(seed=seed, options=self.options))
        steps = len(self.actions[0])
        ended = False
        for action in layout.rows(layout.columns(self.actions, steps), steps):
            if ended:
                raise DivergedError("its episode ended earlier")
            if time.monotonic() > deadline:
                raise DivergedError(f"that takes longer than {LONGEST:g} s")
            go_on()
            ended = _step(member, action, stage)
        if steps and ended != self.ended:
            raise DivergedError("its episode did not end" if self.ended else "its episode ended")
        self._compare(stage)
        if global_states() != generators:
            raise DivergedError("it draws from a global random generator, which its seed does not determine")

    def _compare(self, stage: Stage) -> None:
        if stage.observation != [last.tobytes() for last in self.observation]:
            raise DivergedError("it came to another observation")
        if stage.digest != self.digest:
            raise DivergedError("it showed another observation, reward, flag or info on the way")


def _step(member: FusedEnv, action: Any, stage: Stage) -> bool:
    """Steps an environment, shows what it returns, and returns whether its episode has ended."""
    observation, reward, *flags, info = member.step(action)
    terminated, truncated = as_bool(flags[0], "terminated"), as_bool(flags[1], "truncated")
    stage.show(observation, reward, terminated, truncated, info)
    return terminated or truncated


Rows: TypeAlias = npt.NDArray[np.intp]

_ROOM = 32 * 2**20
"""Bytes for the actions of all environments. Memory is only taken for what is written."""

_LONGEST = 20_000
"""Steps beyond which a replay would keep the fleet waiting for too long."""

_ALL = slice(None)


@final
class Replays:
    """The log of all environments of a fleet. ``block`` holds their rows, ``last`` what each has shown last."""

    def __init__(self, block: BlockRows, last: LastObservations) -> None:
        self._block, self._last = block, last
        num_envs = len(block.rewards)
        a_step = sum(array.nbytes for array in block.action_arrays)
        self._room = min(_LONGEST, _ROOM // max(a_step, 1))
        self._actions = [np.empty((num_envs, self._room + 1, *a.shape[1:]), a.dtype) for a in block.action_arrays]
        # As long as the room is, nothing is known: an episode was too long, or something else cannot be repeated.
        self._lengths = np.full(num_envs, self._room, np.intp)
        self._episodes = np.zeros(num_envs, np.uint64)
        self._ended = np.zeros(num_envs, np.bool_)
        self._digests = np.zeros(num_envs, np.uint64)
        # The episode, counted from 1, in which an attribute was last set; 0 if none was.
        self._changed = np.zeros(num_envs, np.uint64)
        self._everyone = np.arange(num_envs)
        self._options: dict[int, Options] = {}
        self._options_to_come: dict[int, Options] = {}

    def expect_resets(self, options: Mapping[int, Options]) -> None:
        """Notes the options of resets that some environments are asked for."""
        self._options_to_come.update(options)

    def note(self, rows: Rows | slice = _ALL) -> None:
        """Notes what some environments have done; to be called while the block shows what came of it."""
        block, lengths = self._block, self._lengths
        for log, actions in zip(self._actions, block.action_arrays, strict=True):
            log[self._everyone[rows], lengths[rows]] = actions[rows]
        lengths[rows] = np.minimum(lengths[rows] + 1, self._room)
        # Kept together with the actions that led there, whether or not the user was ever given it.
        self._last.keep(None if isinstance(rows, slice) else rows)
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

    def note_change(self, rows: Rows) -> None:
        """Notes that attributes of some environments are set in the middle of their present episode."""
        self._changed[rows] = self._episodes[rows] + 1

    def forget(self, rows: Any) -> None:
        """Forgets the replays of some environments, which cannot be rebuilt until they begin another episode."""
        self._lengths[rows] = self._room

    def of(self, row: int) -> Replay | None:
        """Returns what brings an environment back to where it was before its present step; None if that is unknown."""
        length = int(self._lengths[row])
        is_changed = self._changed[row] == self._episodes[row] + 1
        if length >= self._room or self._block.touched[row] or is_changed:
            return None
        return Replay(
            int(self._episodes[row]),
            self._options.get(row),
            [log[row, :length].copy() for log in self._actions],
            bool(self._ended[row]),
            [np.array(column[row]) for column in self._last.columns],
            int(self._digests[row]),
        )
