"""All environments of a fleet on a device: their keys, parameters and states, and the turns they take."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet.device.draws import decoded
from envfleet.device.functional import FunctionalEnv
from envfleet.device.kernels import Carry, Constants, Kernels, Shown, Tree
from envfleet.device.results import fitted
from envfleet.redraw import Randomize
from envfleet.vector.failures import Failure, as_error

_WORD = 2**32


class Now(NamedTuple):
    """Where the fleet stands; one object, so that an interrupted call leaves the one or the other."""

    carry: Carry
    observations: Tree


class DeviceBatch:
    """The environments, and the compiled functions that move them.

    Args:
        env: What all are copies of.
        num_envs: How many.
        mode: When they are reset.
        time_limit: Steps after which an episode is truncated; None for no limit.
        rows: Parameters that differ between environments: a column of num_envs values each.
        randomize: Parameters that every episode draws.
        device: Where the arrays lie.
    """

    def __init__(
        self,
        env: FunctionalEnv,
        num_envs: int,
        mode: AutoresetMode,
        time_limit: int | None,
        rows: Mapping[str, npt.NDArray[Any]],
        randomize: Randomize,
        device: Any,
    ) -> None:
        self.env, self.num_envs, self.randomize, self._device = env, num_envs, randomize, device
        self.kernels = Kernels(
            env, lambda value: fitted(env.observation_space, value), mode, time_limit, frozenset(rows), randomize
        )
        self._check(rows)
        self.seeds = _fresh_seeds(num_envs)
        values = {**env.values, **rows}
        self.constants = Constants(self._put(_keys(self.seeds)), {k: self._put(v) for k, v in values.items()})
        self.now: Now | None = None

    def _put(self, value: Any) -> Any:
        return jax.device_put(value, self._device)

    def _check(self, rows: Mapping[str, npt.NDArray[Any]]) -> None:
        """Traces a reset and a step: what does not fit is told now, with the environment's name."""
        values = {**self.env.values, **{name: column[0] for name, column in rows.items()}}
        action = jax.tree.map(jnp.asarray, _plain(self.env.action_space.sample()))
        try:
            self.kernels.settle(values, action, self.num_envs)
        except Exception as error:
            raise as_error(Failure.of(error, 0, "make", "traced by JAX"), worker=None) from error

    # -- turns ----------------------------------------------------------------------------------------

    def reset(self, seeds: Sequence[int | None], mask: npt.NDArray[np.bool_]) -> Tree:
        """Begins new episodes where the mask holds; returns the infos."""
        episodes = self._next_episodes(seeds, mask)
        is_whole = bool(mask.all())
        carry, shown = (None, None) if is_whole or self.now is None else self.now
        carry, observations, info = self.kernels.reset(
            self.constants, carry, self._put(mask), is_whole, self._put(episodes), shown
        )
        self.now = Now(carry, observations)
        return info

    def _next_episodes(self, seeds: Sequence[int | None], mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
        """Gives those that have a new seed its key; returns the number of everyone's episode after the reset."""
        new = {row: seeds[row] for row in np.flatnonzero(mask).tolist() if seeds[row] is not None}
        if (
            self.now is None or self.is_lost
        ):  # lost are the numbers of the episodes too: other keys, so that none comes twice
            new = {**(dict(enumerate(_fresh_seeds(self.num_envs))) if self.now else {}), **new}
            episodes = np.zeros(self.num_envs, np.uint32)
        else:
            episodes = np.asarray(self.now.carry.episodes) + mask
        episodes[list(new)] = 0
        for row, seed in new.items():
            assert seed is not None
            self.seeds[row] = seed
        if new:
            self.constants = self.constants._replace(keys=self._put(_keys(self.seeds)))
        return episodes.astype(np.uint32)

    def step(self, actions: Tree) -> Shown:
        """Steps all environments."""
        assert self.now is not None
        shown: Shown
        carry, shown = self.kernels.step(self.constants, self.now.carry, actions)
        self.now = Now(carry, shown.observations)
        return shown

    def rollout(self, policy_fn: Callable[..., Any], policy: tuple[Any, Any], steps: int) -> tuple[Tree, Any]:
        """Steps all environments in one compiled loop; returns the last observations and what it recorded."""
        assert self.now is not None
        carry, observations, recorded = self.kernels.rollout(
            self.constants, self.now.carry, self.now.observations, policy, policy_fn, steps
        )
        self.now = Now(carry, observations)
        return observations, recorded

    @property
    def is_lost(self) -> bool:
        """Whether a call was interrupted after it had taken the states, and before it gave them back."""
        return self.now is not None and any(leaf.is_deleted() for leaf in jax.tree.leaves(self.now.carry))

    # -- single environments --------------------------------------------------------------------------

    def row(self, index: int) -> Any:
        """The carry and the observation of one environment, as NumPy arrays."""
        return jax.tree.map(lambda leaf: np.array(leaf[index]), self.now)

    def set_row(self, index: int, row: Any) -> None:
        """Puts back what ``row`` gave."""
        self.now = jax.tree.map(lambda leaf, value: leaf.at[index].set(value), self.now, row)

    def set_key(self, index: int, seed: int) -> None:
        """Gives one environment the key of a seed, and leaves the number of its turn."""
        self.seeds[index] = seed
        self.constants = self.constants._replace(keys=self._put(_keys(self.seeds)))

    def values_of(self, index: int) -> dict[str, Any]:
        """The parameters that one environment has now."""
        values = {name: self._cell(name, index) for name in self.env.defaults | self.constants.values}
        if self.now is not None:
            cells = jax.tree.map(lambda column: column[index], self.now.carry.cells)
            values.update(decoded(self.randomize, cells))
        return values

    def _cell(self, name: str, index: int) -> Any:
        value: Any = self.constants.values.get(name, self.env.defaults.get(name))
        return value[index] if self.kernels.is_varied(name) else value

    def set_value(self, name: str, rows: Sequence[int], values: Sequence[Any]) -> None:
        """Sets a parameter of some environments."""
        column = np.array([np.asarray(self._cell(name, row)) for row in range(self.num_envs)])
        for row, value in zip(rows, values, strict=True):
            column[row] = value
        self.constants.values[name] = self._put(column)
        self.kernels.vary(name)

    def cells(self) -> npt.NDArray[np.float64]:
        """The parameters drawn for the present episodes, as numbers: float64[num_envs, parameters]."""
        if self.now is None or not self.randomize:
            return np.zeros((self.num_envs, len(self.randomize)))
        return np.stack([np.asarray(self.now.carry.cells[name], np.float64) for name in self.randomize], axis=1)


def _fresh_seeds(count: int) -> list[int]:
    return [secrets.randbits(63) for _ in range(count)]


def _keys(seeds: Sequence[int]) -> npt.NDArray[np.uint32]:
    """One key per seed; below 2**64 the two words of the seed, which is ``PRNGKey(seed)`` below 2**32."""
    return np.array([_words(seed) for seed in seeds], np.uint32)


def _words(seed: int) -> tuple[int, int]:
    if seed >= _WORD**2:
        first, second = np.random.SeedSequence(seed).generate_state(2)
        return int(first), int(second)
    return seed // _WORD, seed % _WORD


def _plain(value: Any) -> Any:
    """A sample of a space as dicts, tuples and arrays."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else np.asarray(value)
