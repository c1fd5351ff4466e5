"""The compiled functions of a fleet on a device: reset, step with the reset inside, and whole rollouts.

Environment ``i`` has a key of its own, ``PRNGKey(seed + i)``. Its episode ``e``, counted from the seed, has the key
``fold_in(key, e)``; the reset draws from ``fold_in(episode_key, 0)``, step ``t`` from ``fold_in(episode_key, t)``. So
an episode is the same in every autoreset mode, and can be stepped by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from gymnasium.vector import AutoresetMode
from jax import lax

from envfleet.device.draws import decoded, drawn_cells
from envfleet.device.functional import FunctionalEnv
from envfleet.redraw import Randomize

Tree: TypeAlias = Any

_LARGE = 2**20
"""Bytes. The memory of larger states is given to the next step. Smaller ones would cost more than they save: what is
still read when it is to be written over has to be copied first."""

_RESETS_SHARE = 8
"""One in so many environments is reset at a time: in most turns fewer begin an episode."""

_FEWEST_RESETS = 8
"""Fewer at a time would cost as much."""

_DRAWS = 0x5EED
"""Folded into an episode's key to draw its parameters, so that its first state is the same with and without."""


class Carry(NamedTuple):
    """All that changes from turn to turn, one row per environment. ``ended`` is None if no turn asks for it."""

    states: Tree
    cells: dict[str, Any]
    elapsed: Any
    ended: Any
    episodes: Any


class Constants(NamedTuple):
    """What stays: uint32[num_envs, 2] keys, and parameters, of which some have a row per environment."""

    keys: Any
    values: dict[str, Any]


class Shown(NamedTuple):
    """What a turn shows, one row per environment.

    Attributes:
        observations: As the caller sees them.
        rewards: float32, 0 where an episode begins instead of a step.
        terminated: bool.
        truncated: bool.
        began: Which environments were reset in this turn.
        step_info: Infos of steps; of SAME_STEP also those of the last steps.
        reset_info: Infos of resets, zeros where there was none.
        last: SAME_STEP: the observations before the resets; else None.
    """

    observations: Tree
    rewards: Any
    terminated: Any
    truncated: Any
    began: Any
    step_info: Tree
    reset_info: Tree
    last: Tree


class Kernels:
    """The functions for one kind of environment. They are compiled when first called.

    Args:
        env: The environment.
        show: Casts an observation to what its space says, and refuses what does not fit.
        mode: When environments are reset.
        time_limit: Steps after which an episode is truncated; None for no limit.
        varied: The parameters that have a row per environment.
        randomize: The parameters that every episode draws.
    """

    def __init__(
        self,
        env: FunctionalEnv,
        show: Callable[[Tree], Tree],
        mode: AutoresetMode,
        time_limit: int | None,
        varied: frozenset[str],
        randomize: Randomize,
    ) -> None:
        self._env, self._show, self._mode, self._limit = env, show, mode, time_limit
        self._randomize = randomize
        self._axes = {name: 0 if name in varied else None for name in env.values | dict.fromkeys(varied)}
        self._state_types: Tree = None
        self._is_large = True
        self._compile()

    def _compile(self) -> None:
        self.step = jax.jit(self._step, donate_argnums=1 if self._is_large else ())
        self.reset = jax.jit(self._reset, static_argnums=3)
        self.rollout = jax.jit(self._rollout, static_argnums=(4, 5), donate_argnums=1)

    def is_varied(self, name: str) -> bool:
        """Whether environments may differ in a parameter."""
        return self._axes.get(name) == 0

    def vary(self, name: str) -> None:
        """Lets environments differ in a parameter; what was compiled is compiled anew."""
        if not self.is_varied(name):
            self._axes[name] = 0
            self._compile()

    # -- single environments ----------------------------------------------------------------------------

    def one_reset(self, key: Any, values: dict[str, Any]) -> tuple[Tree, dict[str, Any], Tree, Tree]:
        """State, drawn numbers, observation and info of a new episode."""
        cells = drawn_cells(self._randomize, jax.random.fold_in(key, _DRAWS)) if self._randomize else {}
        state, observation, info = self._env.reset(key, {**values, **decoded(self._randomize, cells)})
        return self._settled(state), cells, self._show(observation), _arrays(info)

    def one_step(self, key: Any, state: Tree, cells: dict[str, Any], action: Tree, values: dict[str, Any]) -> Any:
        """State, observation, reward, terminated, truncated and info of a step."""
        values = {**values, **decoded(self._randomize, cells)}
        state, observation, reward, terminated, truncated, info = self._env.step(key, state, action, values)
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        flags = (jnp.asarray(flag, jnp.bool_).reshape(()) for flag in (terminated, truncated))
        return self._settled(state), self._show(observation), reward, *flags, _arrays(info)

    def settle(self, values: dict[str, Any], action: Tree, num_envs: int) -> None:
        """Finds out which types a state has after a reset and after a step, which may differ, and how large it is."""
        key = jax.random.PRNGKey(0)
        first, cells, *_ = jax.eval_shape(self.one_reset, key, values)
        after = jax.eval_shape(self.one_step, key, first, cells, action, values)[0]
        if jax.tree.structure(first) != jax.tree.structure(after):
            raise TypeError(
                f"{self._env.name} has a state of another structure after a step than after a reset: "
                f"{jax.tree.structure(after)} instead of {jax.tree.structure(first)}."
            )
        self._state_types = jax.tree.map(_common_type, first, after)
        sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self._state_types)]
        self._is_large = num_envs * sum(sizes) >= _LARGE
        self._compile()

    def _settled(self, state: Tree) -> Tree:
        """The state with the types it always has: a compiled loop needs equal ones."""
        if self._state_types is None:
            return jax.tree.map(jnp.asarray, state)
        return jax.tree.map(
            lambda leaf, kind: jnp.asarray(leaf).astype(kind.dtype).reshape(kind.shape), state, self._state_types
        )

    def _kept(self, ended: Any) -> Any:
        return ended if self._mode is AutoresetMode.NEXT_STEP else None

    # -- all environments -------------------------------------------------------------------------------

    def _all_resets(self, keys: Any, values: dict[str, Any]) -> Any:
        return jax.vmap(self.one_reset, in_axes=(0, self._axes))(keys, values)

    def _reset(
        self, constants: Constants, carry: Carry | None, mask: Any, is_whole: bool, episodes: Any, shown: Tree
    ) -> Any:
        """Resets the environments of a mask; ``is_whole`` says that these are all, so that no state is needed."""
        zeros = jnp.zeros_like(episodes)
        states, cells, observations, info = self._all_resets(_keys(constants.keys, episodes, zeros), constants.values)
        fresh = Carry(states, cells, zeros, self._kept(zeros.astype(jnp.bool_)), episodes)
        if is_whole:
            return fresh, observations, info
        return _where(mask, fresh, carry), _where(mask, observations, shown), info

    def _step(self, constants: Constants, carry: Carry, actions: Tree) -> tuple[Carry, Shown]:
        elapsed = carry.elapsed + 1
        keys = _keys(constants.keys, carry.episodes, elapsed)
        stepped = jax.vmap(self.one_step, in_axes=(0, 0, 0, 0, self._axes))(
            keys, carry.states, carry.cells, actions, constants.values
        )
        states, observations, rewards, terminated, truncated, step_info = stepped
        if self._limit is not None:
            truncated |= elapsed >= self._limit
        if self._mode is AutoresetMode.NEXT_STEP:
            rewards = jnp.where(carry.ended, 0.0, rewards)
            terminated, truncated = terminated & ~carry.ended, truncated & ~carry.ended
            began = carry.ended
        else:
            began = (terminated | truncated) & (self._mode is AutoresetMode.SAME_STEP)
        episodes = carry.episodes + began
        after = (states, carry.cells, observations, elapsed)
        now, reset_info = self._with_resets(constants, episodes, began, after)
        states, cells, shown, elapsed = now
        ended = self._kept(terminated | truncated)
        last = observations if self._mode is AutoresetMode.SAME_STEP else None
        carry = Carry(states, cells, elapsed, ended, episodes)
        return carry, Shown(shown, rewards, terminated, truncated, began, step_info, reset_info, last)

    def _with_resets(self, constants: Constants, episodes: Any, began: Any, after: Any) -> tuple[Any, Tree]:
        """What a step gave, replaced by resets where episodes begin; some are computed at a time, as long as needed."""
        traced = jax.eval_shape(self._all_resets, constants.keys, constants.values)
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), traced[3])
        if self._mode is AutoresetMode.DISABLED:
            return after, blank
        last = len(episodes) - 1
        some = min(last + 1, max(_FEWEST_RESETS, (last + 1) // _RESETS_SHARE))
        ranks = jnp.cumsum(began, dtype=jnp.int32)  # the k-th environment that begins an episode has rank k

        def reset_some(now: tuple[Any, Any, Tree]) -> tuple[Any, Any, Tree]:
            done, (*before, elapsed), info = now
            wanted = done + 1 + jnp.arange(some, dtype=jnp.int32)
            rows = jnp.minimum(jnp.searchsorted(ranks, wanted, method="scan_unrolled"), last)
            values = {name: each[rows] if self._axes[name] == 0 else each for name, each in constants.values.items()}
            keys = _keys(constants.keys[rows], episodes[rows], jnp.zeros(some, jnp.uint32))
            # Joined with what picks its rows, a reset would be rounded otherwise than alone.
            *fresh, fresh_info = lax.optimization_barrier(self._all_resets(keys, values))
            place = ranks - 1 - done
            theirs = began & (place >= 0) & (place < some)
            spread = jax.tree.map(lambda leaf: leaf[jnp.clip(place, 0, some - 1)], (fresh, fresh_info))
            (*before,), info = _where(theirs, spread, (before, info))
            return done + some, (*before, jnp.where(theirs, 0, elapsed)), info

        begin = jnp.int32(0), after, blank
        _, now, info = lax.while_loop(lambda now: now[0] < ranks[-1], reset_some, begin)
        return now, info

    def _rollout(
        self,
        constants: Constants,
        carry: Carry,
        observations: Tree,
        policy: tuple[Any, Any],
        policy_fn: Callable[..., Any],
        steps: int,
    ) -> tuple[Carry, Tree, Any]:
        """``policy``: the policy's parameters and the key that it draws from."""
        parameters, key = policy

        def turn(now: tuple[Carry, Tree], number: Any) -> tuple[tuple[Carry, Tree], Any]:
            carry, observations = now
            actions, extras = policy_fn(parameters, observations, jax.random.fold_in(key, number))
            carry, shown = self._step(constants, carry, actions)
            return (carry, shown.observations), (observations, actions, extras, shown)

        (carry, observations), recorded = lax.scan(turn, (carry, observations), jnp.arange(steps, dtype=jnp.uint32))
        return carry, observations, recorded


def _common_type(first: Any, after: Any) -> Any:
    """That of a leaf of the state: some environments write 3 at a reset and [3] or 3.0 at a step."""
    if first.size != after.size:
        raise TypeError(f"a state has the shape {after.shape} after a step where it has {first.shape} after a reset.")
    return jax.ShapeDtypeStruct(first.shape, jnp.promote_types(first.dtype, after.dtype))


def _keys(keys: Any, episodes: Any, steps: Any) -> Any:
    """The keys of a step, or of a reset, which is step 0: uint32[..., 2]."""
    fold = jax.vmap(jax.random.fold_in)
    return fold(fold(keys, episodes), steps)


def _where(mask: Any, one: Tree, other: Tree) -> Tree:
    """Row by row the one or the other."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b), one, other)


def _arrays(info: Any) -> Tree:
    return jax.tree.map(jnp.asarray, dict(info or {}))
