"""Environments brought back to where others were that are lost: begun again, and given the same actions again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from envfleet import _core
from envfleet.vector.layout import Array, SpaceLayout
from envfleet.vector.global_generators import global_states
from envfleet.vector.infos import info_digest
from envfleet.vector.fused_env import Member
from envfleet.vector.engine import Options
from envfleet.vector.outputs import as_bool, as_number
from envfleet.vector.pages import PageRows

LONGEST = 20.0
"""Seconds that all replays of a shard may take together: the others wait for them."""


class DivergedError(RuntimeError):
    """A new environment did not do what the lost one had done."""


@final
class Stage:
    """Where an environment shows once more what a lost one had shown, aside from the block.

    Args:
        layout: Of observations.
        arrays: Like those it would write to.
    """

    def __init__(self, layout: SpaceLayout, arrays: Sequence[Array]) -> None:
        self._arrays = [np.zeros_like(array[:1]) for array in arrays]
        self._write = layout.writer(layout.columns(self._arrays, 1), PageRows())
        self._reward, self._digest = np.zeros(1), np.zeros(1, np.uint64)
        self._digests = _core.Digests(self._arrays, self._reward, self._digest)

    def begin(self, observation: Any, info: Any) -> None:
        """What a reset returned."""
        self._write(0, observation)
        self._digests.begin(0, info_digest(info))

    def show(self, observation: Any, reward: Any, terminated: bool, truncated: bool, info: Any) -> None:
        """What a step returned."""
        self._write(0, observation)
        self._reward[0] = as_number(reward)
        self._digests.add(0, terminated, truncated, info_digest(info))

    @property
    def observation(self) -> list[bytes]:
        """The last one, leaf by leaf."""
        return [array.tobytes() for array in self._arrays]

    @property
    def digest(self) -> int:
        """What all that was shown comes to."""
        return int(self._digest[0])


@dataclass(frozen=True)
class Replay:
    """How to bring a new environment to where a lost one was.

    Attributes:
        episode: Its number, by which its origin is found.
        options: Those of the reset that began it.
        actions: Since then: for each leaf an array (steps, *shape).
        ended: Whether the last of them ended it.
        observation: For each leaf an array: what the lost one had shown last.
        digest: What all that it had shown since its reset comes to, see ``_core.Digests``.
    """

    episode: int
    options: Options
    actions: Sequence[Array]
    ended: bool
    observation: Sequence[Array]
    digest: int

    def play(
        self,
        member: Member,
        seed: int | None,
        layout: SpaceLayout,
        stage: Stage,
        go_on: Callable[[], None],
        deadline: float,
    ) -> None:
        """Has an environment go through it, or raises a DivergedError if it does not show what the lost one had shown.

        Args:
            member: The environment, brought to where its episode began.
            seed: That of the reset which began it.
            layout: Of its actions.
            stage: Where it shows what it does.
            go_on: Called before each step.
            deadline: By ``time.monotonic()``.
        """
        if not self.digest:
            raise DivergedError("it has shown an info that cannot be compared")
        generators = global_states()
        go_on()
        stage.begin(*member.reset(seed=seed, options=self.options))
        ended, steps = False, len(self.actions[0])
        for action in layout.rows(layout.columns(self.actions, steps), steps):
            if ended:
                raise DivergedError("its episode ended earlier")
            if time.monotonic() > deadline:
                raise DivergedError(f"that takes longer than {LONGEST:g} s")
            go_on()
            observation, reward, *flags, info = member.step(action)
            terminated, truncated = as_bool(flags[0], "terminated"), as_bool(flags[1], "truncated")
            stage.show(observation, reward, terminated, truncated, info)
            ended = terminated or truncated
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
