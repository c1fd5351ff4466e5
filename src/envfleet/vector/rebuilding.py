"""Environments brought back to where others were that are lost: begun again, and given the same actions again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from envfleet.vector.buffers import Array, SpaceLayout
from envfleet.vector.member import Member
from envfleet.vector.orders import Options

LONGEST = 20.0
"""Seconds that all replays of a shard may take together: the others wait for them."""


class DivergedError(RuntimeError):
    """A new environment did not do what the lost one had done."""


@dataclass(frozen=True)
class Replay:
    """How to bring a new environment to where a lost one was.

    Attributes:
        episode: Its number, by which its origin is found.
        options: Those of the reset that began it.
        actions: Since then: for each leaf an array (steps, *shape).
        ended: Whether the last of them ended it.
        observation: For each leaf an array: what the lost one had shown last.
    """

    episode: int
    options: Options
    actions: Sequence[Array]
    ended: bool
    observation: Sequence[Array]

    def play(
        self, member: Member, seed: int | None, layout: SpaceLayout, go_on: Callable[[], None], deadline: float
    ) -> Any:
        """Has an environment go through it, ``go_on()`` before each step; returns the observation it comes to.

        Args:
            member: The environment, brought to where its episode began.
            seed: That of the reset which began it.
            layout: Of its actions.
            go_on: Called before each step.
            deadline: By ``time.monotonic()``.
        """
        go_on()
        observation, _ = member.reset(seed=seed, options=self.options)
        ended, steps = False, len(self.actions[0])
        for action in layout.rows(layout.columns(self.actions, steps), steps):
            if ended:
                raise DivergedError("its episode ended earlier")
            if time.monotonic() > deadline:
                raise DivergedError(f"that takes longer than {LONGEST:g} s")
            go_on()
            observation, _, terminated, truncated, _ = member.step(action)
            ended = bool(terminated) or bool(truncated)
        if steps and ended != self.ended:
            raise DivergedError("its episode did not end" if self.ended else "its episode ended")
        return observation
