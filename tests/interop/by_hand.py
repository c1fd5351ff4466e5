"""A fleet beside the functions of a library, called by hand with the keys that docs/jax.md promises: to the bit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from envfleet import AutoresetMode
from envfleet.device import JaxVectorEnv

MODES = list(AutoresetMode)


class Turn(NamedTuple):
    """What a reset or a step shows, one row per environment."""

    observations: Any
    rewards: Any
    terminated: Any
    truncated: Any
    infos: Any


class Library(ABC):
    """A library's own functions for all environments: ``jax.jit(jax.vmap(...))`` of them, without any autoreset."""

    @abstractmethod
    def reset(self, keys: Any) -> Any:
        """All that is known after a reset, one row per environment."""

    @abstractmethod
    def step(self, keys: Any, now: Any, actions: Any) -> Any:
        """The same after a step."""

    @abstractmethod
    def shown(self, now: Any) -> Turn:
        """What this shows."""


class BraxInterface(Library):
    """An environment with Brax's ``reset(key)`` and ``step(state, action)``, whose state holds all that it shows."""

    def __init__(self, env: Any) -> None:
        self._reset, self._step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))

    def reset(self, keys: Any) -> Any:
        return self._reset(keys)

    def step(self, keys: Any, now: Any, actions: Any) -> Any:
        return self._step(now, actions)

    def shown(self, now: Any) -> Turn:
        return Turn(now.obs, now.reward, now.done > 0, np.zeros(now.done.shape, np.bool_), now.metrics)


class ByHand:
    """The environments of a library, their episodes counted and ended by hand."""

    def __init__(self, library: Library, num_envs: int, seed: int, limit: int | None) -> None:
        self._library, self._limit = library, limit
        self._keys = jnp.stack([jax.random.PRNGKey(seed + i) for i in range(num_envs)])
        self.episodes, self._elapsed = np.zeros((2, num_envs), np.uint32)
        self._now = library.reset(self._keys_now())

    def _keys_now(self) -> Any:
        fold = jax.vmap(jax.random.fold_in)
        return fold(fold(self._keys, jnp.asarray(self.episodes)), jnp.asarray(self._elapsed))

    @property
    def shown(self) -> Turn:
        turn = Turn(*(jax.tree.map(np.asarray, part) for part in self._library.shown(self._now)))
        return turn if self._limit is None else turn._replace(truncated=turn.truncated | (self._elapsed >= self._limit))

    def step(self, actions: Any) -> Turn:
        self._elapsed += 1
        self._now = self._library.step(self._keys_now(), self._now, jnp.asarray(actions))
        return self.shown

    def begin(self, mask: npt.NDArray[np.bool_]) -> Turn:
        """New episodes where the mask holds."""
        self.episodes += mask
        self._elapsed[mask] = 0
        self._now = _chosen(mask, self._library.reset(self._keys_now()), self._now)
        return self.shown


def assert_fleet_is_by_hand(envs: JaxVectorEnv, library: Library, steps: int, limit: int | None = None) -> Any:
    """Steps both, through autoresets; returns how many episodes each environment has ended."""
    hand = ByHand(library, envs.num_envs, 11, limit)
    envs.action_space.seed(1)
    _assert_same(envs.reset(seed=11)[0], hand.shown.observations)
    ended, is_same_step = np.zeros(envs.num_envs, np.bool_), envs.autoreset_mode is AutoresetMode.SAME_STEP
    for _ in range(steps):
        actions = envs.action_space.sample()
        mine, theirs = Turn(*envs.step(actions)), hand.step(actions)
        last, began = theirs, ended if envs.autoreset_mode is AutoresetMode.NEXT_STEP else np.zeros_like(ended)
        if began.any():
            fresh, keep = hand.begin(began), ~began
            theirs = Turn(
                fresh.observations,
                last.rewards * keep,
                last.terminated & keep,
                last.truncated & keep,
                _chosen(began, fresh.infos, last.infos),
            )
        ended = theirs.terminated | theirs.truncated
        if is_same_step and ended.any():
            for row in np.flatnonzero(ended):
                _assert_same(mine.infos["final_obs"][row], jax.tree.map(lambda leaf, at=row: leaf[at], last[0]))
            fresh = hand.begin(ended)
            infos = _chosen(ended, fresh.infos, last.infos)
            theirs = theirs._replace(observations=fresh.observations, infos=infos)
        _assert_same(mine[:4], theirs[:4])
        _assert_same_infos(mine.infos, theirs.infos, all_began=(began | (ended & is_same_step)).all())
        if envs.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            _assert_same(envs.reset(options={"reset_mask": ended})[0], hand.begin(ended).observations)
    return hand.episodes


def _chosen(mask: npt.NDArray[np.bool_], one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b), one, other)


def _assert_same(mine: Any, theirs: Any) -> None:
    assert jax.tree.structure(mine) == jax.tree.structure(theirs)
    jax.tree.map(np.testing.assert_array_equal, mine, theirs)


def _assert_same_infos(mine: dict[str, Any], theirs: dict[str, Any], all_began: bool) -> None:
    """Infos of steps are zeros where an episode began, and left out where all did."""
    keys = [key for key in theirs if key in mine or not all_began]
    _assert_same({key: mine[key] for key in keys}, {key: theirs[key] for key in keys})
