"""New parameters for every episode: ``make_vec(..., randomize={...}, randomize_on="reset")``.

Each environment has its own random stream. Each reset, explicit or automatic, takes the next episode from the stream: a
value for every parameter, and a seed. The start of a stream determines all of it:

- ``reset(seed=s)`` restarts the stream from the environment's own seed. The first episode uses this seed itself.
- Before the first such reset, the stream starts from ``randomize_seed`` and the environment's index.
- After a failure, the stream of the new environment starts from the seed of its first reset. Without such a seed, it
  starts from ``randomize_seed``, the index and the number of times that the environment was made again.

The backend and the number of environments do not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet.randomize import Distribution, ParameterTable, generator

if TYPE_CHECKING:
    from envfleet.vector.fused_env import AnyEnv

Randomize: TypeAlias = Mapping[str, Distribution]

_SEEDS = ""
"""The name under which seeds are drawn. No parameter can have this name."""

_AHEAD = 16

# An episode's number, from what its stream began, that seed or number, how many episodes the stream had given by then.
PLACE_WORDS = 4
_UNKNOWN, _FROM_SEED, _FROM_RESTARTS = range(3)
_LARGEST = 2**64 - 1


class Episode(NamedTuple):
    """The values of one episode: a number for each parameter, encoded by its distribution, and a seed."""

    cells: tuple[float, ...]
    seed: int

    def parameters(self, randomize: Randomize) -> dict[str, Any]:
        """Returns the constructor keywords."""
        pairs = zip(randomize.items(), self.cells, strict=True)
        return {name: distribution.value(cell) for (name, distribution), cell in pairs}


@final
class EpisodeStream:
    """The episodes of one environment, one after another. Several are drawn at a time, only for speed."""

    def __init__(self, randomize: Randomize, entropy: int, key: tuple[int, ...] = ()) -> None:
        self._sources = [(each, generator(entropy, key, name)) for name, each in randomize.items()]
        self._seeds = generator(entropy, key, _SEEDS)
        self._ahead: deque[Episode] = deque()

    def next(self) -> Episode:
        """Returns the next episode."""
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
        """Returns the stream after ``reset(seed=seed)``, or after the ``restarts``-th restart of the environment."""
        if seed is not None:
            return EpisodeStream(self.randomize, seed)
        key = (self.index, restarts) if restarts else (self.index,)
        return EpisodeStream(self.randomize, self.randomize_seed, key)


@final
@dataclass(frozen=True)
class RedrawnEnv:
    """Makes one environment, and makes it again for every episode: the ``env_fn`` of a fleet that redraws.

    Attributes:
        origin: What its streams start from.
        make: Makes an environment from the parameters drawn.
        make_again: The same for all environments after the first, which need no more checks.
    """

    origin: ParameterStream
    make: Callable[[dict[str, Any]], AnyEnv]
    make_again: Callable[[dict[str, Any]], AnyEnv]

    def __call__(self) -> AnyEnv:
        """Makes the environment with the parameters that it has before its first reset."""
        return self.make(self.origin.stream().next().parameters(self.origin.randomize))


@final
@dataclass(frozen=True)
class StreamRecord:
    """The row of one environment in the block. It outlives the environment's process.

    Attributes:
        cells: float64 (parameters,): the parameters of the current episode.
        places: uint64 (2, PLACE_WORDS): the positions of the current episode and the one before in their streams. The
            episode number in each tells which is which.
        episodes: uint64 (1,): the number of episodes begun.
    """

    cells: npt.NDArray[np.float64]
    places: npt.NDArray[np.uint64]
    episodes: npt.NDArray[np.uint64]


@final
class Redraw:
    """Makes one environment for each episode. ``restarts``: how often it was made again after failures."""

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
        """Closes the environment of the last episode. Returns that of the next episode, and the seed of its reset."""
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
        """Returns to the episode with this number, which another process has begun, and makes its environment."""
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


def write_first_parameters(env_fns: Sequence[Any], cells: npt.NDArray[np.float64]) -> None:
    """Writes what environments are made with, float64[num_envs, parameters]; whoever makes them does so later."""
    for row, env_fn in zip(cells, env_fns, strict=True):
        if isinstance(env_fn, RedrawnEnv):
            row[:] = env_fn.origin.stream().next().cells


def redrawn(env_fns: Any) -> Randomize:
    """Returns what a fleet's environments draw for every episode; ordinary environments draw nothing."""
    first = env_fns[0]
    return first.origin.randomize if isinstance(first, RedrawnEnv) else {}


def table_of(randomize: Randomize, cells: npt.NDArray[np.float64]) -> ParameterTable:
    """Returns the parameters of all environments, from their cells, float64[num_envs, parameters]."""
    columns = {}
    for (name, distribution), column in zip(randomize.items(), cells.T.tolist(), strict=True):
        columns[name] = values = np.empty(len(cells), dtype=distribution.dtype)
        for index, cell in enumerate(column):
            values[index] = distribution.value(cell)
    return ParameterTable(columns, len(cells))
