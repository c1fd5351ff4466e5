"""Episodes ahead of time: where every episode has parameters of its own, the pool must know them before it needs them.

They are drawn and converted here, some for each environment at a time, and wait in the pool; its threads take them up
without asking Python.
"""

from __future__ import annotations

import reprlib
from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet import _native
from envfleet.native.catalogue import EnvArguments
from envfleet.redraw import Episode, EpisodeStream, ParameterStream, Randomize
from envfleet.vector.failures import Failure

ArgumentsOf: TypeAlias = Callable[[int, dict[str, Any]], EnvArguments]
"""From an environment's number and the parameters drawn for it to what the pool takes."""

_AHEAD, _TOO_FEW = 8, 4
_SEEDS = 2**32


@final
@dataclass(frozen=True)
class PlannedEpisodes:
    """Part of a snapshot: the episode being played, those planned, and the stream of all after them."""

    randomize: Randomize
    episodes: tuple[Episode, ...]
    stream: EpisodeStream


@final
class EpisodePlans:
    """Keeps a pool supplied.

    Args:
        pool: Whose environments have the parameters that their streams begin with.
        origins: Where each environment's parameters come from.
        arguments_of: Converts them.
    """

    def __init__(self, pool: _native.Pool, origins: Sequence[ParameterStream], arguments_of: ArgumentsOf) -> None:
        self._pool, self._origins, self._arguments_of = pool, origins, arguments_of
        self.randomize = origins[0].randomize
        self._streams = [origin.stream() for origin in origins]
        self._known = [deque([origin.stream().next()]) for origin in origins]
        """Of each environment the present episode and those planned; those before are dropped now and then."""
        self._just_seeded: set[int] = set()
        for env, stream in enumerate(self._streams):
            self._plan(env, stream.next())

    def restart(self, env: int, seed: int) -> None:
        """Begins a stream anew. Its first episode is played with what the generator was seeded with."""
        self._streams[env] = self._origins[env].stream(seed)
        self._forget(env)
        self._just_seeded.add(env)

    def supply(self) -> Failure | None:
        """To be called before each turn of the pool; a failure says which environment cannot have its parameters."""
        if not self._pool.lacks_plans():
            return None
        for env, stream in enumerate(self._streams):
            missing = _AHEAD - self._pool.plans(env)
            for _ in range(missing if missing > _AHEAD - _TOO_FEW else 0):
                try:
                    self._plan(env, stream.next())
                except Exception as error:
                    return Failure.of(error, env, "reset")
        return None

    def cells(self) -> npt.NDArray[np.float64]:
        """The parameters of the present episodes, as numbers: float64[num_envs, parameters]."""
        return np.array([self._present_first(env)[0].cells for env in range(len(self._known))], np.float64)

    def snapshot(self, env: int) -> PlannedEpisodes:
        """What there is to know about an environment's parameters, now and later."""
        return PlannedEpisodes(self.randomize, tuple(self._present_first(env)), deepcopy(self._streams[env]))

    def restore(self, env: int, saved: PlannedEpisodes, restore_state: Callable[[], None]) -> None:
        """Puts it back, and the state with it, which brings its own generator; all of it or nothing."""
        self._check(saved)
        stream = deepcopy(saved.stream)
        planned = list(self._present_first(env))[1:]
        self._forget(env)
        try:
            for place, episode in enumerate(saved.episodes):
                self._plan(env, episode, keeps_generator=place == 0)
            restore_state()
        except BaseException:
            self._forget(env)
            for episode in planned:
                self._plan(env, episode)
            raise
        self._pool.adopt_plan(env)
        self._streams[env] = stream

    def _check(self, saved: PlannedEpisodes) -> None:
        if not isinstance(saved, PlannedEpisodes) or not isinstance(saved.stream, EpisodeStream):
            raise ValueError(f"its episodes are none, but {reprlib.repr(saved)}.")
        if saved.randomize != self.randomize:
            raise ValueError(
                f"set_state needs a state of a fleet that redraws the same parameters: this one has {self.randomize}, "
                f"the state's had {saved.randomize}."
            )
        if not isinstance(saved.episodes, tuple) or not saved.episodes or not all(map(self._fits, saved.episodes)):
            raise ValueError(f"its planned episodes are none: {reprlib.repr(saved.episodes)}.")

    def _fits(self, episode: Any) -> bool:
        return (
            isinstance(episode, Episode)
            and isinstance(episode.cells, tuple)
            and len(episode.cells) == len(self.randomize)
            and all(isinstance(cell, int | float) for cell in episode.cells)
            and isinstance(episode.seed, int)
            and 0 <= episode.seed < _SEEDS
        )

    def _plan(self, env: int, episode: Episode, *, keeps_generator: bool = False) -> None:
        arguments = self._arguments_of(env, episode.parameters(self.randomize))
        seed = None if keeps_generator or env in self._just_seeded else episode.seed
        self._pool.plan_episode(env, arguments.parameters, arguments.time_limit, seed)
        self._known[env].append(episode)
        self._just_seeded.discard(env)

    def _forget(self, env: int) -> None:
        present = self._present_first(env)
        while len(present) > 1:
            present.pop()
        self._pool.forget_plans(env)

    def _present_first(self, env: int) -> deque[Episode]:
        known, planned = self._known[env], self._pool.plans(env)
        while len(known) > planned + 1:
            known.popleft()
        return known
