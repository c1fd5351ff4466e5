"""New parameters for every episode: ``make_vec(..., randomize={...}, randomize_on="reset")``.

Every environment has a stream of its own. Each of its resets, asked for or automatic, takes the next episode from
it: a value for every parameter, and a seed. A stream is fixed by where it begins:

- ``reset(seed=s)`` begins it anew from the environment's own seed; that first episode is played with the seed itself.
- Until the first such reset it begins from ``randomize_seed`` and the environment's index.
- An environment made again after a failure begins it from the seed it is then reset with, or if there was none, from
  ``randomize_seed``, its index and how often it was made again.

Who runs the environment, and with how many others, has no part in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet.randomize import Distribution, ParameterTable, generator

if TYPE_CHECKING:
    from envfleet.vector.fused_env import AnyEnv

Randomize: TypeAlias = Mapping[str, Distribution]

_SEEDS = ""
"""Under this name, which no parameter can have, the seeds are drawn."""

_AHEAD = 16

# An episode's number, from what its stream began, that seed or number, how many episodes the stream had given by then.
PLACE_WORDS = 4
_UNKNOWN, _FROM_SEED, _FROM_RESTARTS = range(3)
_LARGEST = 2**64 - 1


class Episode(NamedTuple):
    """What one episode is played with: a number for each parameter, as its distribution knows it, and a seed."""

    cells: tuple[float, ...]
    seed: int

    def parameters(self, randomize: Randomize) -> dict[str, Any]:
        """The constructor keywords."""
        pairs = zip(randomize.items(), self.cells, strict=True)
        return {name: distribution.value(cell) for (name, distribution), cell in pairs}


@final
class EpisodeStream:
    """The episodes of one environment, one after another; drawn some at a time, which changes nothing but the speed."""

    def __init__(self, randomize: Randomize, entropy: int, key: tuple[int, ...] = ()) -> None:
        self._sources = [(each, generator(entropy, key, name)) for name, each in randomize.items()]
        self._seeds = generator(entropy, key, _SEEDS)
        self._ahead: deque[Episode] = deque()

    def next(self) -> Episode:
        """The next episode."""
        if not self._ahead:
            columns = [distribution.cells(rng, _AHEAD).tolist() for distribution, rng in self._sources]
            # 32 bits: the most that every library which takes seeds accepts.
            seeds = self._seeds.integers(2**32, size=_AHEAD).tolist()
            rows = zip(*columns, strict=True)
            self._ahead.extend(Episode(cells, seed) for cells, seed in zip(rows, seeds, strict=True))
        return self._ahead.popleft()


@final
@dataclass(frozen=True)
class ParameterStream:
    """Where one environment's streams begin. ``index`` is its number in the fleet."""

    randomize: Randomize
    randomize_seed: int
    index: int

    def stream(self, seed: int | None = None, restarts: int = 0) -> EpisodeStream:
        """The stream after ``reset(seed=seed)``, or of an environment made again for the ``restarts``-th time."""
        if seed is not None:
            return EpisodeStream(self.randomize, seed)
        key = (self.index, restarts) if restarts else (self.index,)
        return EpisodeStream(self.randomize, self.randomize_seed, key)


@final
@dataclass(frozen=True)
class RedrawnEnv:
    """Makes one environment, and makes it again for every episode: the ``env_fn`` of a fleet that redraws.

    Attributes:
        origin: Where its parameters come from.
        make: Makes one, from the parameters drawn.
        make_again: The same for those after the first, which need no more checks.
    """

    origin: ParameterStream
    make: Callable[[dict[str, Any]], AnyEnv]
    make_again: Callable[[dict[str, Any]], AnyEnv]

    def __call__(self) -> AnyEnv:
        """One with the parameters that it has until its first reset."""
        return self.make(self.origin.stream().next().parameters(self.origin.randomize))


@final
@dataclass(frozen=True)
class StreamRecord:
    """One environment's row of the block, which outlives its process.

    Attributes:
        cells: float64 (parameters,): those of the present episode.
        places: uint64 (2, PLACE_WORDS): where the present episode and the one before lie in their streams; which is
            which, the number of the episode tells.
        episodes: uint64 (1,): how many it has begun.
    """

    cells: npt.NDArray[np.float64]
    places: npt.NDArray[np.uint64]
    episodes: npt.NDArray[np.uint64]


@final
class Redraw:
    """One environment's episodes: makes the environment of each. ``restarts``: how often it was made after failures."""

    def __init__(self, env_fn: RedrawnEnv, record: StreamRecord, restarts: int) -> None:
        self._env_fn, self._record = env_fn, record
        self._begin_stream(None, restarts)
        self._closed: AnyEnv | None = None
        record.cells[:] = env_fn.origin.stream().next().cells

    def _begin_stream(self, seed: int | None, restarts: int) -> None:
        self._stream = self._env_fn.origin.stream(seed, restarts)
        self._beginning = (_FROM_RESTARTS, restarts) if seed is None else (_FROM_SEED, seed)
        self._drawn = 0

    def next(self, old: AnyEnv, seed: int | None) -> tuple[AnyEnv, int]:
        """Closes the environment of the last episode; returns that of the next one, and the seed to reset it with."""
        if seed is not None:
            self._begin_stream(seed, 0)
        episode = self._stream.next()
        self._drawn += 1
        kind, start = self._beginning
        known = start <= _LARGEST
        number = int(self._record.episodes[0]) + 1
        self._record.places[number % 2] = (number, kind, start, self._drawn) if known else (number, _UNKNOWN, 0, 0)
        return self._make(old, episode), episode.seed if seed is None else seed

    def restore(self, old: AnyEnv, number: int) -> AnyEnv:
        """Goes back to the episode of this number, which another process had begun; returns its environment."""
        noted, kind, start, drawn = self._record.places[number % 2].tolist()
        if noted != number or kind == _UNKNOWN:
            raise LookupError("it is not known which parameters it had")
        self._begin_stream(*((start, 0) if kind == _FROM_SEED else (None, start)))
        for _ in range(drawn):
            episode = self._stream.next()
        self._drawn = drawn
        return self._make(old, episode)

    def _make(self, old: AnyEnv, episode: Episode) -> AnyEnv:
        if old is not self._closed:  # it is, if the one that was to follow could not be made
            old.close()
            self._closed = old
        env = self._env_fn.make_again(episode.parameters(self._env_fn.origin.randomize))
        if env.action_space != old.action_space:
            env.close()
            raise ValueError(
                f"randomize_on='reset' needs parameters that leave the action space as it is: it was "
                f"{old.action_space}, with the parameters of this episode it is {env.action_space}."
            )
        self._record.cells[:] = episode.cells
        return env


def redrawn(env_fns: Any) -> Randomize:
    """What the environments of a fleet draw anew for every episode: nothing, if they are ordinary ones."""
    first = env_fns[0]
    return first.origin.randomize if isinstance(first, RedrawnEnv) else {}


def table_of(randomize: Randomize, cells: npt.NDArray[np.float64]) -> ParameterTable:
    """The parameters of all environments from their cells, float64[num_envs, parameters]."""
    columns = {}
    for (name, distribution), column in zip(randomize.items(), cells.T.tolist(), strict=True):
        columns[name] = values = np.empty(len(cells), dtype=distribution.dtype)
        for index, cell in enumerate(column):
            values[index] = distribution.value(cell)
    return ParameterTable(columns, len(cells))
