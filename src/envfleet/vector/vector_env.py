"""What every vector environment shares: the contract, whatever runs the environments.

A ``FleetVectorEnv`` has an engine and a state. The engine (``engine.py``) runs the environments, the state
(``state.py``) knows which calls are allowed. Everything that users can see is decided here, once. The subclasses
(``SyncVectorEnv``, ``AsyncVectorEnv``, …) are constructors: they check arguments and make an engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.vector import VectorEnv

from envfleet.errors import InvalidActionError
from envfleet.randomize import ParameterTable
from envfleet.redraw import Randomize, table_of
from envfleet.vector import arguments
from envfleet.vector.copies import made_again, parcel_of
from envfleet.vector.engine import PLAIN_STEP, CallOrder, Engine, ResetOrder, Rows, SetAttrOrder, StepOrder, StepResult
from envfleet.vector.infos import Info
from envfleet.vector.layout import LayoutError
from envfleet.vector.runtime import LEAST_PATIENCE, close_when_free, wait_for_others
from envfleet.vector.spaces import FleetSpaces
from envfleet.vector.state import FleetState

if TYPE_CHECKING:
    from typing_extensions import Self

Seed: TypeAlias = "int | Sequence[int | None] | None"
Options: TypeAlias = "dict[str, Any] | Sequence[dict[str, Any] | None] | None"
Indices: TypeAlias = "int | Sequence[int] | npt.NDArray[np.integer[Any]] | None"

_RESERVED_CALLS = ("reset", "step", "close")
CLOSE_TIMEOUT = 5.0
"""Seconds that close() waits, unless it is told otherwise."""


@dataclass(frozen=True)
class FleetOptions:
    """How a fleet shows what its engine does.

    Attributes:
        plan: One sentence: what runs the environments, and why.
        copy: Whether observations are the caller's to keep.
        batch_size: How many results ``recv`` waits for; None for those of all environments.
        randomize: The parameters that every episode draws anew, if any.
        needs_reset: Why the environments must be reset before anything else, if they must.
        check_reset: Refuses seeds and options that the environments do not take, given one of each per environment.
    """

    plan: str
    copy: bool = True
    batch_size: int | None = None
    randomize: Randomize | None = None
    needs_reset: str | None = None
    check_reset: Callable[[Sequence[int | None], Sequence[dict[str, Any] | None]], None] | None = None


class FleetVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Many environments behind one batched Gymnasium interface.

    Shapes: with ``n = num_envs``, observations are ``(n, *shape)`` arrays (or dicts and tuples of them),
    rewards float64 ``(n,)``, terminated and truncated bool ``(n,)``.

    One thread at a time may use it; a call that meets another one raises FleetInUseError. Only ``close`` may be called
    at any time, from anywhere.

    Subclasses name Gymnasium's VectorEnv once more among their bases: some libraries look at the direct ones only.

    Args:
        spaces: Those of the environments.
        engine: What runs them.
        options: How the fleet shows them.

    Attributes:
        plan: One sentence: what runs the environments, and why.
        batch_size: How many results ``recv`` waits for; ``first_ready`` is the same.
    """

    closed = True  # until there is something to close
    _drawn_once: ParameterTable | None = None

    def __init__(self, spaces: FleetSpaces, engine: Engine, options: FleetOptions) -> None:
        self.num_envs = spaces.num_envs
        self.single_observation_space = spaces.single_observation_space
        self.observation_space = spaces.observation_space
        self.single_action_space = spaces.single_action_space
        self.action_space = spaces.action_space
        self.metadata = {**spaces.metadata, "autoreset_mode": spaces.autoreset_mode}
        self.render_mode = spaces.render_mode
        self.autoreset_mode = spaces.autoreset_mode
        self.plan, self.copy = options.plan, options.copy
        self.batch_size = arguments.checked_batch_size(options.batch_size, self.num_envs)
        self._randomize, self._check_reset = options.randomize, options.check_reset
        self._engine, self._block, self._exclusive = engine, engine.block, engine.exclusive
        self._quick = engine.quick
        self._quick_step = self._quick.step
        self._state = FleetState(engine, self._quick, spaces.autoreset_mode, options.needs_reset)
        self.closed = False

    @property
    def parameters(self) -> ParameterTable | None:
        """The randomised parameters that each environment has now, or None if none are."""
        return table_of(self._randomize, self._block.parameter_cells()) if self._randomize else self._drawn_once

    @property
    def first_ready(self) -> int:
        """How many results ``recv`` waits for."""
        return self.batch_size

    # -- reset ----------------------------------------------------------------------------------------

    def reset(self, *, seed: Seed = None, options: Options = None) -> tuple[Any, Info]:
        """Resets all environments, or those for which ``options["reset_mask"]`` holds.

        Args:
            seed: An int s seeds environment i with s + i; a sequence gives one seed (or None) each;
                None lets the environments' generators run on.
            options: Passed to every environment's ``reset``; a sequence gives one dict (or None) each.

        Returns:
            Batched observations and infos.
        """
        with self._exclusive:
            self._state.start("reset", self._reset_order("reset", seed, options), waited_for=True)
            return self._collect_reset(None)

    def reset_async(self, seed: Seed = None, options: Options = None) -> None:
        """Starts a reset; :meth:`reset_wait` collects it. Arguments as for :meth:`reset`."""
        with self._exclusive:
            self._state.start("reset", self._reset_order("reset_async", seed, options))

    def _reset_order(self, call: str, seed: Seed, options: Options) -> ResetOrder:
        """Checks a reset's arguments; only then begins the call, which may have to discard work under way."""
        seeds = arguments.seeds(seed, self.num_envs)
        mask, per_env = arguments.reset_options(options, self.num_envs)
        if self._check_reset is not None:
            self._check_reset(seeds, per_env)
        self._state.enter()
        self._state.enter_reset(call, mask)
        return ResetOrder(seeds, per_env, mask)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Info]:
        """Waits at most ``timeout`` seconds for the reset under way and returns what :meth:`reset` does."""
        with self._exclusive:
            return self._collect_reset(timeout)

    def _collect_reset(self, timeout: float | None) -> tuple[Any, Info]:
        pending, reports = self._state.collect("reset", timeout)
        assert isinstance(pending.order, ResetOrder)
        results = self._block.reset_results(reports, self.copy)
        self._state.note_resets(pending.order)
        self._state.rest()
        return results

    # -- step -----------------------------------------------------------------------------------------

    def step(self, actions: Any) -> StepResult:
        """Steps all environments.

        Args:
            actions: An element of ``action_space``: for each leaf an array of shape (num_envs, *shape).

        Returns:
            Observations, rewards (float64), terminateds, truncateds (bool), infos.
        """
        return self._quick_step(actions, self.copy) or self._step(actions)

    def _step(self, actions: Any) -> StepResult:
        """A step with everything that a quick one leaves out."""
        with self._exclusive:
            self._begin_step("step", actions, is_whole=True)
            return self._collect_step(None)

    def step_async(self, actions: Any) -> None:
        """Starts a step; :meth:`step_wait` collects it. Refused actions change nothing."""
        with self._exclusive:
            self._begin_step("step_async", actions)

    def _begin_step(self, call: str, actions: Any, *, is_whole: bool = False) -> None:
        """``is_whole``: whether the call also waits for the step, and has been tried as a quick one."""
        self._state.enter_idle(call)
        self._state.check_may_step()
        loose_actions = self._store_actions(actions, were_tried=is_whole)
        order = StepOrder(loose_actions) if loose_actions else PLAIN_STEP
        self._state.start("step", order, waited_for=is_whole)

    def _store_actions(self, actions: Any, rows: Rows | None = None, *, were_tried: bool = False) -> list[list[Any]]:
        try:
            return self._block.store_actions(actions, rows, were_tried=were_tried)
        except LayoutError as error:
            raise InvalidActionError(
                f"The actions do not fit the action space {self.action_space}. {error}. Nothing was stepped."
            ) from error

    def step_wait(self, timeout: float | None = None) -> StepResult:
        """Waits at most ``timeout`` seconds for the step under way and returns what :meth:`step` does.

        When the time runs out a ``multiprocessing.TimeoutError`` is raised and the step stays under way:
        call ``step_wait`` again to collect it.
        """
        with self._exclusive:
            return self._collect_step(timeout)

    def _collect_step(self, timeout: float | None) -> StepResult:
        _, reports = self._state.collect("step", timeout)
        results = self._block.step_results(reports, self.copy)
        self._state.note_ends()
        self._state.rest()
        return results

    # -- first-ready ----------------------------------------------------------------------------------

    def async_reset(self, *, env_ids: Indices = None, seed: Seed = None, options: Options = None) -> None:
        """Starts a reset whose results ``recv`` gives as they come.

        Args:
            env_ids: Which environments. Each must be idle; what others are at work on goes on. By default all: then
                work under way is waited for and forgotten.
            seed: As for ``reset``: an int s seeds environment i with s + i; a sequence gives one seed (or None) for
                each of ``env_ids``.
            options: Passed to every environment's ``reset``; a sequence gives one dict (or None) for each of
                ``env_ids``. No ``reset_mask``.
        """
        with self._exclusive:
            rows, order = self._single_resets(env_ids, seed, options)
            send = self._engine.prepare_resets(rows, order)
            self._state.send(rows, send, resets=True)

    def _single_resets(self, env_ids: Indices, seed: Seed, options: Options) -> tuple[Rows, ResetOrder]:
        """Checks the arguments of resets one by one; only then begins the call."""
        arguments.refuse_reset_mask(options)
        rows = arguments.env_rows(env_ids, self.num_envs)
        if env_ids is None:
            return rows, self._reset_order("async_reset", seed, options)
        seeds, per_env = arguments.resets_of(rows.tolist(), seed, options, self.num_envs)
        if self._check_reset is not None:
            self._check_reset(seeds, per_env)
        self._state.enter_idle("async_reset", tickets_may_be_out=True)
        self._state.check_may_reset(rows)
        return rows, ResetOrder(seeds, per_env, arguments.mask_of(rows.tolist(), self.num_envs))

    def send(self, actions: Any, env_ids: Indices = None) -> None:
        """Has some environments stepped, and returns at once; ``recv`` gives the results as they come.

        Args:
            actions: For each leaf of the action space an array of shape (len(env_ids), *shape).
            env_ids: Which environments, in the order of the actions; by default all. Each must be idle: reset, or
                given back by ``recv``.
        """
        quick_send = self._quick.send
        if quick_send is None or not quick_send(actions, env_ids):
            self._send(actions, env_ids)

    def _send(self, actions: Any, env_ids: Indices) -> None:
        with self._exclusive:
            self._state.enter_idle("send", tickets_may_be_out=True)
            rows = arguments.env_rows(env_ids, self.num_envs)
            self._state.check_may_send(rows)
            send = self._engine.prepare_steps(rows, self._store_actions(actions, rows))
            self._state.send(rows, send)

    def recv(self, timeout: float | None = None) -> StepResult:
        """Waits for the first ``first_ready`` environments (or as many as are at work) and returns their results.

        With native environments the caller steps some itself instead of waiting; no timeout ends that.

        Returns:
            Observations, rewards, terminateds, truncateds, infos as ``step`` does, of k environments instead of all;
            ``infos["env_id"]``, int64 (k,), tells which. Those reset by ``async_reset`` have reward 0.
        """
        quick_recv = self._quick.recv
        results = quick_recv(self.batch_size) if quick_recv is not None and timeout is None else None
        return results or self._recv(timeout)

    def _recv(self, timeout: float | None) -> StepResult:
        with self._exclusive:
            self._state.enter()
            rows, reports = self._state.receive(self.batch_size, timeout)
            results = self._block.ticket_results(rows, reports)
            self._state.note_ends(rows)
            self._state.rest()
            results[4]["env_id"] = rows
            return results

    # -- calls and attributes -------------------------------------------------------------------------

    def call(self, name: str, /, *args: Any, indices: Indices = None, **kwargs: Any) -> tuple[Any, ...]:
        """Calls the method ``name`` (or reads the attribute) of every environment, or of ``indices``.

        An error in one environment is raised after all were asked and leaves the fleet usable.
        """
        with self._exclusive:
            self._begin_call("call", name, args, kwargs, indices, waited_for=True)
            return self._collect_call(None)

    def apply(self, function: Callable[..., Any], /, *args: Any, indices: Indices = None) -> tuple[Any, ...]:
        """Calls ``function(env, *args)`` for every environment, or those of ``indices``, where the environment lives.

        ``env`` is the environment with all its wrappers. Compiled environments are no Python objects: they refuse.
        """
        with self._exclusive:
            self._state.enter_idle("apply")
            asked = arguments.env_indices(indices, self.num_envs)
            name = getattr(function, "__name__", type(function).__name__)
            order = CallOrder(name, args, {}, arguments.mask_of(asked, self.num_envs), function)
            self._state.start("call", order, asked, waited_for=True)
            return self._collect_call(None)

    def call_async(self, name: str, /, *args: Any, indices: Indices = None, **kwargs: Any) -> None:
        """Starts a call; :meth:`call_wait` collects it."""
        with self._exclusive:
            self._begin_call("call_async", name, args, kwargs, indices)

    def _begin_call(
        self,
        call: str,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        indices: Indices,
        *,
        waited_for: bool = False,
    ) -> None:
        self._state.enter_idle(call)
        if name in _RESERVED_CALLS:
            raise ValueError(f"call({name!r}) would bypass the fleet's bookkeeping: use envs.{name}() instead.")
        asked = arguments.env_indices(indices, self.num_envs)
        order = CallOrder(name, args, kwargs, arguments.mask_of(asked, self.num_envs))
        self._state.start("call", order, asked, waited_for=waited_for)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Waits at most ``timeout`` seconds for the call under way; one result per environment asked."""
        with self._exclusive:
            return self._collect_call(timeout)

    def _collect_call(self, timeout: float | None) -> tuple[Any, ...]:
        pending, reports = self._state.collect("call", timeout)
        self._state.rest()
        results = {env: result for report in reports if report for env, result in report.results}
        return tuple(results[env] for env in pending.asked)

    def get_attr(self, name: str, indices: Indices = None) -> tuple[Any, ...]:
        """The attribute ``name`` of every environment, or of ``indices``; methods are called."""
        return self.call(name, indices=indices)

    def set_attr(self, name: str, values: Any, indices: Indices = None) -> None:
        """Sets the attribute ``name``: a list or tuple gives one value per environment, else all get it."""
        with self._exclusive:
            self._state.enter_idle("set_attr")
            asked = arguments.env_indices(indices, self.num_envs)
            per_env = arguments.spread(values, asked, self.num_envs)
            order = SetAttrOrder(name, per_env, arguments.mask_of(asked, self.num_envs))
            self._state.start("call", order, waited_for=True)
            self._collect_call(None)

    def render(self) -> tuple[Any, ...]:
        """The rendered frame of every environment."""
        return self.call("render")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random generator of every environment (copies, where they live in other processes)."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every environment's generator, -1 where unknown."""
        return self.get_attr("np_random_seed")

    # -- life and death -------------------------------------------------------------------------------

    def close(self, *, timeout: float | None = None, terminate: bool = False) -> None:  # type: ignore[override]
        """Closes all environments and ends all workers. May be called in any state, any number of times, from anywhere.

        A call that is under way in another thread raises ClosedEnvironmentError, and is waited for. Called from within
        another call, by a signal handler or an environment, it returns at once, and that call closes the fleet when it
        comes to its end.

        Args:
            timeout: Seconds to wait for work under way and for the environments' own ``close`` (default 5);
                workers that need longer are killed.
            terminate: Kill the workers at once.
        """
        arguments.check_timeout(timeout)
        if self.closed or not self._exclusive.begin_closing():
            return
        self.closed, self._quick.ready = True, False
        limit = CLOSE_TIMEOUT if timeout is None else float(timeout)
        patience = waited = LEAST_PATIENCE if terminate else max(LEAST_PATIENCE, limit)
        try:
            waited = wait_for_others(self._exclusive, patience)
        finally:  # also after a Ctrl-C
            close_when_free(self._exclusive, partial(self._engine.close, max(0.0, limit - waited), terminate))
        if waited == patience:
            self._leave_to_the_other_thread(patience)

    def _leave_to_the_other_thread(self, waited: float) -> None:
        self._engine.interrupt()
        warnings.warn(
            f"{type(self).__name__} was closed while another thread was inside a call of it that did not return within "
            f"{waited:g} s. That thread closes the environments when it does.",
            RuntimeWarning,
            stacklevel=3,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled, and copied, a fleet is made again from what made it, and has to be reset."""
        return made_again, (parcel_of(self),)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
