"""What every vector environment shares: the contract, whatever runs the environments.

A backend (sync, process, …) subclasses ``FleetVectorEnv`` and only passes turns: ``_begin(order)`` sets its
shards to work, ``_finish(timeout)`` waits for them. Everything users can see is decided here, once.
"""

from __future__ import annotations

import multiprocessing
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet import _core
from envfleet.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    InvalidActionError,
    NoAsyncCallError,
    ResetNeeded,
    WorkerError,
)
from envfleet.randomize import ParameterTable
from envfleet.redraw import Randomize, table_of
from envfleet.vector import arguments
from envfleet.vector.block import Buffers, Rows
from envfleet.vector.engine import CallOrder, Order, Report, ResetOrder, SetAttrOrder, StepOrder
from envfleet.vector.failures import as_error
from envfleet.vector.infos import Info
from envfleet.vector.layout import LayoutError
from envfleet.vector.runtime import LEAST_PATIENCE, close_when_free, exclusive_for, wait_for_others
from envfleet.vector.spaces import FleetSpaces

if TYPE_CHECKING:
    from typing_extensions import Self

Seed: TypeAlias = "int | Sequence[int | None] | None"
Options: TypeAlias = "dict[str, Any] | Sequence[dict[str, Any] | None] | None"
Indices: TypeAlias = "int | Sequence[int] | npt.NDArray[np.integer[Any]] | None"
StepResult: TypeAlias = tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], Info]

_PLAIN_STEP = StepOrder()
_RESERVED_CALLS = ("reset", "step", "close")
CLOSE_TIMEOUT = 5.0
"""Seconds that close() waits, unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """An order under way: what was asked, by which of the calls, and whether that call also waits for it."""

    name: str
    order: Order
    waited_for: bool
    asked: Sequence[int] = ()


_PLAIN_PENDING = _Pending("step", _PLAIN_STEP, waited_for=True)


class FleetVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]], ABC):
    """Many environments behind one batched Gymnasium interface.

    Shapes: with ``n = num_envs``, observations are ``(n, *shape)`` arrays (or dicts and tuples of them),
    rewards float64 ``(n,)``, terminated and truncated bool ``(n,)``.

    One thread at a time may use it; a call that meets another one raises FleetInUseError. Only ``close`` may be called
    at any time, from anywhere.

    Attributes:
        plan: One sentence: what runs the environments, and why.
        batch_size: How many results ``recv`` waits for.
    """

    plan: str
    _drawn_once: ParameterTable | None = None

    def _set_up(
        self,
        spaces: FleetSpaces,
        buffers: Buffers,
        *,
        copy: bool,
        batch_size: int | None,
        restarts: bool,
        redrawn: Randomize | None = None,
    ) -> None:
        """To be called by the backend once the environments exist."""
        self.num_envs = spaces.num_envs
        self.single_observation_space = spaces.single_observation_space
        self.observation_space = spaces.observation_space
        self.single_action_space = spaces.single_action_space
        self.action_space = spaces.action_space
        self.metadata = {**spaces.metadata, "autoreset_mode": spaces.autoreset_mode}
        self.render_mode = spaces.render_mode
        self.autoreset_mode = spaces.autoreset_mode
        self.copy = copy
        self.batch_size = arguments.checked_batch_size(batch_size, self.num_envs)
        self._exclusive = exclusive_for(type(self).__name__)
        self._restarts = restarts
        self._redrawn = redrawn
        self._out = np.zeros(self.num_envs, np.bool_)
        self._buffers = buffers
        # Where every step has more to do than to pass results on there are no quick ones.
        self._batch = None if restarts or spaces.autoreset_mode is AutoresetMode.DISABLED else buffers.batch
        self._pending: _Pending | None = None
        self._finished = np.zeros(self.num_envs, np.bool_)
        self._needs_reset: str | None = None
        self._interrupted = False
        self._lost: WorkerError | None = None
        # Whether the last call was a step that went well: nothing needs to be checked before the next one then.
        self._calm = False

    @property
    def parameters(self) -> ParameterTable | None:
        """The randomised parameters that each environment has now, or None if none are."""
        return table_of(self._redrawn, self._buffers.parameter_cells()) if self._redrawn else self._drawn_once

    # -- the backend's part ---------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, order: Order) -> None:
        """Sets the shards to work on ``order``."""

    @abstractmethod
    def _finish(self, timeout: float | None) -> Sequence[Report | None]:
        """Waits for all shards and returns their reports; a TimeoutError loses nothing."""

    @abstractmethod
    def _steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:
        """Packs what has the given environments stepped, and returns what sends it, which refuses nothing.

        ``loose_actions`` as in a StepOrder, one value a row.
        """

    @abstractmethod
    def _resets(self, order: ResetOrder) -> Callable[[], None]:
        """The same for resets of all environments, one by one."""

    @abstractmethod
    def _receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:
        """The first ``count`` results and their reports; a TimeoutError loses nothing."""

    @abstractmethod
    def _recover(self) -> None:
        """Replaces what died, and forgets all work under way."""

    @abstractmethod
    def _is_busy(self) -> bool:
        """Whether something was begun and not yet finished."""

    @abstractmethod
    def _discard(self) -> None:
        """Waits for work that was begun and never finished, and forgets it."""

    @abstractmethod
    def _shut_down(self, timeout: float, terminate: bool) -> None:
        """Ends everything that runs; never raises, takes a bounded time."""

    def _cut_short(self) -> None:
        """Ends, from another thread, what the thread that uses the fleet waits for; it will shut down itself."""

    @abstractmethod
    def _worker_of(self, env_index: int) -> int | None:
        """The worker an environment runs in, None for the caller's process."""

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
            self._start("reset", self._reset_order("reset", seed, options), waited_for=True)
            return self._collect_reset(None)

    def reset_async(self, seed: Seed = None, options: Options = None) -> None:
        """Starts a reset; :meth:`reset_wait` collects it. Arguments as for :meth:`reset`."""
        with self._exclusive:
            self._start("reset", self._reset_order("reset_async", seed, options))

    def _reset_order(self, call: str, seed: Seed, options: Options) -> ResetOrder:
        """Checks a reset's arguments; only then revives the fleet, if need be, and forgets tickets under way.

        A masked reset forgets nothing: those it leaves alone must not lose a step.
        """
        self._check_open()
        seeds = arguments.seeds(seed, self.num_envs)
        mask, per_env = arguments.reset_options(options, self.num_envs)
        if self._needs_reset is not None and not mask.all():
            raise ResetNeeded(f"{self._needs_reset} A masked reset is not enough: call reset() without reset_mask.")
        if self._lost is not None:
            self._recover()
            self._lost, self._interrupted = None, False
            self._out[:] = False
        elif self._out.any() and self._pending is None and mask.all():
            self._discard_work()
            self._out[:] = False
        self._check_idle(call)
        return ResetOrder(seeds, per_env, mask)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Info]:
        """Waits at most ``timeout`` seconds for the reset under way and returns what :meth:`reset` does."""
        with self._exclusive:
            return self._collect_reset(timeout)

    def _collect_reset(self, timeout: float | None) -> tuple[Any, Info]:
        pending, reports = self._collect("reset", timeout)
        assert isinstance(pending.order, ResetOrder)
        self._needs_reset = None
        self._raise_first_failure(pending.name, reports)
        infos = self._buffers.infos(reports)
        self._finished[pending.order.mask] = False
        if self._restarts:
            self._buffers.remember()
        return self._buffers.observations(self.copy), infos

    # -- step -----------------------------------------------------------------------------------------

    def step(self, actions: Any) -> StepResult:
        """Steps all environments.

        Args:
            actions: An element of ``action_space``: for each leaf an array of shape (num_envs, *shape).

        Returns:
            Observations, rewards (float64), terminateds, truncateds (bool), infos.
        """
        with self._exclusive:
            calm, self._calm = self._calm, False
            if calm and self._batch is not None and self._batch.put(actions):
                return self._step_again(self._batch)
            if not calm:
                self._check_idle("step")
                self._check_may_step()
            self._start("step", self._step_order(actions), waited_for=True)
            return self._collect_step(None)

    def _step_again(self, batch: _core.Batch) -> StepResult:
        """What ``step`` does after one that went well, with actions that are stored already: nothing is left to check.

        The same as ``_start`` and ``step_wait`` in fewer calls, which cost a small fleet a tenth of its speed.
        """
        pages = self._buffers.pages
        try:
            if pages is not None:
                pages.open()
            self._begin(_PLAIN_STEP)
            self._pending = _PLAIN_PENDING
            reports = self._finish(None)
            self._buffers.absorb(reports)
        except BaseException as error:
            if self._pending is not None or self._is_busy():
                self._give_up("step", error)
            raise
        finally:
            page = pages.close() if pages is not None else None
        self._pending = None
        self._raise_first_failure("step", reports)
        infos = self._buffers.infos(reports) if batch.has_infos() else {}
        self._calm = True
        observations = self._buffers.observations_on(page) if page else None
        return batch.results(observations, self.copy, infos)

    def step_async(self, actions: Any) -> None:
        """Starts a step; :meth:`step_wait` collects it. Refused actions change nothing."""
        with self._exclusive:
            self._check_idle("step_async")
            self._check_may_step()
            self._start("step", self._step_order(actions))

    def _step_order(self, actions: Any) -> StepOrder:
        loose_actions = self._checked_actions(actions)
        return StepOrder(loose_actions) if loose_actions else _PLAIN_STEP

    def _check_may_step(self, rows: Rows | None = None) -> None:
        if self._needs_reset is not None:
            raise ResetNeeded(f"{self._needs_reset} Call reset() before the next step.")
        if self.autoreset_mode is not AutoresetMode.DISABLED:
            return
        finished = np.flatnonzero(self._finished)
        finished = finished if rows is None else np.intersect1d(finished, rows)
        if len(finished):
            raise ResetNeeded(
                f"The episodes of environments {finished.tolist()} have ended and autoreset is disabled. Call "
                'reset(options={"reset_mask": mask}) for them first; nothing was stepped.'
            )

    def _checked_actions(self, actions: Any, rows: Rows | None = None) -> list[list[Any]]:
        try:
            return self._buffers.store_actions(actions, rows)
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
        _, reports = self._collect("step", timeout)
        buffers = self._buffers
        self._raise_first_failure("step", reports)
        infos = buffers.infos(reports)
        ends_matter = self.autoreset_mode is AutoresetMode.DISABLED
        if self._restarts:
            self._mend_restarted(np.flatnonzero(buffers.restarted), infos)
            buffers.remember()
        terminated, truncated = buffers.terminated.copy(), buffers.truncated.copy()
        if ends_matter:
            np.logical_or(terminated, truncated, out=self._finished)
        observations, rewards = buffers.observations(self.copy), buffers.rewards.copy()
        self._calm = not ends_matter
        return observations, rewards, terminated, truncated, infos

    # -- first-ready ----------------------------------------------------------------------------------

    def async_reset(self, *, seed: Seed = None, options: Options = None) -> None:
        """Starts a reset of all environments whose results ``recv`` gives as they come. Arguments as for ``reset``."""
        with self._exclusive:
            order = self._reset_order("async_reset", seed, options)
            if not order.mask.all():
                raise ValueError("async_reset() resets all environments: leave reset_mask out, or use reset().")
            send = self._resets(order)
            self._needs_reset = None
            self._send_tickets(np.arange(self.num_envs), send)

    def send(self, actions: Any, env_ids: Indices = None) -> None:
        """Has some environments stepped, and returns at once; ``recv`` gives the results as they come.

        Args:
            actions: For each leaf of the action space an array of shape (len(env_ids), *shape).
            env_ids: Which environments, in the order of the actions; by default all. Each must be idle: reset, or
                given back by ``recv``.
        """
        with self._exclusive:
            self._send(actions, env_ids)

    def _send(self, actions: Any, env_ids: Indices) -> None:
        self._check_idle("send", tickets_may_be_out=True)
        rows = arguments.env_rows(env_ids, self.num_envs)
        self._check_may_step(rows)
        if self._out[rows].any():
            raise AlreadyPendingCallError(
                f"send() to environments {rows[self._out[rows]].tolist()}, which are still at work: each has to come "
                "back from recv() first. Nothing was sent.",
                "send",
            )
        self._send_tickets(rows, self._steps(rows, self._checked_actions(actions, rows)))

    def recv(self, timeout: float | None = None) -> StepResult:
        """Waits for the first ``batch_size`` environments (or as many as are at work) and returns their results.

        Returns:
            Observations, rewards, terminateds, truncateds, infos as ``step`` does, of k environments instead of all;
            ``infos["env_id"]``, int64 (k,), tells which. Those reset by ``async_reset`` have reward 0.
        """
        with self._exclusive:
            return self._collect_some(timeout)

    def _collect_some(self, timeout: float | None) -> StepResult:
        self._check_open()
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        if self._needs_reset is not None:
            raise ResetNeeded(f"{self._needs_reset} Call reset() before the next step.")
        arguments.check_timeout(timeout)
        count = min(self.batch_size, int(np.count_nonzero(self._out)))
        if count == 0:
            name = self._pending and self._pending.name
            what = f"a {name} is under way, which {name}_wait() collects" if name else "no environment is at work"
            raise NoAsyncCallError(f"recv() without send() or async_reset(): {what}.", "recv")
        try:
            rows, reports = self._receive(count, timeout)
            self._buffers.absorb_rows(rows, reports)
            self._out[rows] = False
        except multiprocessing.TimeoutError:
            raise
        except BaseException as error:
            self._give_up("step", error)
            raise
        return self._result_of(rows, reports)

    def _send_tickets(self, rows: Rows, send: Callable[[], None]) -> None:
        try:
            self._out[rows] = True
            send()
        except BaseException as error:
            self._give_up("step", error)
            raise

    def _result_of(self, rows: Rows, reports: Sequence[Report | None]) -> StepResult:
        buffers = self._buffers
        self._raise_first_failure("step", reports)
        infos = buffers.infos_of(rows, reports)
        if self._restarts:
            self._mend_restarted(rows[buffers.restarted[rows]], infos, rows)
            buffers.remember(rows)
        terminated, truncated = buffers.terminated[rows], buffers.truncated[rows]
        self._finished[rows] = terminated | truncated
        infos["env_id"] = rows
        return buffers.observations_of(rows), buffers.rewards[rows], terminated, truncated, infos

    def _mend_restarted(self, restarted: Rows, infos: Info, rows: Rows | None = None) -> None:
        """Gives episodes that were cut off by a failure their true last observations."""
        for row in restarted.tolist():
            if not self._buffers.truncated[row]:  # it was reset by the user
                continue
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                place = row if rows is None else int(np.flatnonzero(rows == row)[0])
                infos["final_obs"][place] = self._buffers.recall(row)
            else:
                self._buffers.restore(row)

    # -- calls and attributes -------------------------------------------------------------------------

    def call(self, name: str, /, *args: Any, indices: Indices = None, **kwargs: Any) -> tuple[Any, ...]:
        """Calls the method ``name`` (or reads the attribute) of every environment, or of ``indices``.

        An error in one environment is raised after all were asked and leaves the fleet usable.
        """
        with self._exclusive:
            asked = self._check_call("call", name, indices)
            order = CallOrder(name, args, kwargs, arguments.mask_of(asked, self.num_envs))
            self._start("call", order, asked, waited_for=True)
            return self._collect_call(None)

    def call_async(self, name: str, /, *args: Any, indices: Indices = None, **kwargs: Any) -> None:
        """Starts a call; :meth:`call_wait` collects it."""
        with self._exclusive:
            asked = self._check_call("call_async", name, indices)
            self._start("call", CallOrder(name, args, kwargs, arguments.mask_of(asked, self.num_envs)), asked)

    def _check_call(self, call: str, name: str, indices: Indices) -> list[int]:
        self._check_idle(call)
        if name in _RESERVED_CALLS:
            raise ValueError(f"call({name!r}) would bypass the fleet's bookkeeping: use envs.{name}() instead.")
        return arguments.env_indices(indices, self.num_envs)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Waits at most ``timeout`` seconds for the call under way; one result an environment asked."""
        with self._exclusive:
            return self._collect_call(timeout)

    def _collect_call(self, timeout: float | None) -> tuple[Any, ...]:
        pending, reports = self._collect("call", timeout)
        self._raise_first_failure("call", reports)
        results = {env: result for report in reports if report for env, result in report.results}
        return tuple(results[env] for env in pending.asked)

    def get_attr(self, name: str, indices: Indices = None) -> tuple[Any, ...]:
        """The attribute ``name`` of every environment, or of ``indices``; methods are called."""
        return self.call(name, indices=indices)

    def set_attr(self, name: str, values: Any, indices: Indices = None) -> None:
        """Sets the attribute ``name``: a list or tuple gives one value an environment, else all get it."""
        with self._exclusive:
            self._check_idle("set_attr")
            asked = arguments.env_indices(indices, self.num_envs)
            per_env = arguments.spread(values, asked, self.num_envs)
            self._start("call", SetAttrOrder(name, per_env, arguments.mask_of(asked, self.num_envs)), waited_for=True)
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
        self.closed, self._calm = True, False
        limit = CLOSE_TIMEOUT if timeout is None else float(timeout)
        patience = waited = LEAST_PATIENCE if terminate else max(LEAST_PATIENCE, limit)
        try:
            waited = wait_for_others(self._exclusive, patience)
        finally:  # also after a Ctrl-C
            close_when_free(self._exclusive, partial(self._shut_down, max(0.0, limit - waited), terminate))
        if waited == patience:
            self._leave_to_the_other_thread(patience)

    def _leave_to_the_other_thread(self, waited: float) -> None:
        self._cut_short()
        warnings.warn(
            f"{type(self).__name__} was closed while another thread was inside a call of it that did not return within "
            f"{waited:g} s. That thread closes the environments when it does.",
            RuntimeWarning,
            stacklevel=3,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the state machine ----------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._calm = False  # whoever asks is about to do something else
        if self.closed:
            raise ClosedEnvironmentError(f"{type(self).__name__} is closed: make a new one.")

    def _check_idle(self, call: str, *, tickets_may_be_out: bool = False) -> None:
        self._check_open()
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        if self._pending is not None and self._pending.waited_for:  # an interruption came between start and wait
            self._give_up(self._pending.name, KeyboardInterrupt())
        if self._interrupted:
            self._discard_work()
            self._interrupted = False
        if self._pending is not None:
            name = self._pending.name
            raise AlreadyPendingCallError(
                f"{call}() while a {name} is under way: collect it with {name}_wait() first.", name
            )
        if not tickets_may_be_out and self._out.any():
            if self._needs_reset is not None:  # recv() would be refused
                raise ResetNeeded(f"{self._needs_reset} Call reset() first.")
            out = np.flatnonzero(self._out).tolist()
            raise AlreadyPendingCallError(
                f"{call}() while environments {out} are at work: collect them with recv() first, or reset() all.",
                "recv",
            )

    def _start(self, name: str, order: Order, asked: Sequence[int] = (), *, waited_for: bool = False) -> None:
        plain = order is _PLAIN_STEP and waited_for
        pending = _PLAIN_PENDING if plain else _Pending(name, order, waited_for, asked)
        try:
            self._begin(order)
            self._pending = pending
        except BaseException as error:
            if self._is_busy():  # interrupted on the way, not refused
                self._give_up(name, error)
            raise

    def _collect(self, name: str, timeout: float | None) -> tuple[_Pending, Sequence[Report | None]]:
        self._check_open()
        if self._pending is None or self._pending.name != name:
            raise NoAsyncCallError(f"{name}_wait() without {name}_async(): no {name} is under way.", name)
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        arguments.check_timeout(timeout)
        pending = self._pending
        try:
            reports = self._finish(timeout)
            self._buffers.absorb(reports)
        except multiprocessing.TimeoutError:
            raise  # still under way, to be collected later
        except BaseException as error:
            self._give_up(name, error)
            raise
        self._pending = None
        return pending, reports

    def _give_up(self, name: str, error: BaseException) -> None:
        """After a Ctrl-C the work under way is forgotten; after a death only reset() helps."""
        self._pending, self._calm = None, False
        if isinstance(error, WorkerError):
            self._lost = error
            self._needs_reset = "A worker was lost."
            return
        self._interrupted = True
        if name != "call":
            self._needs_reset = f"The last {name} was interrupted."

    def _discard_work(self) -> None:
        try:
            self._discard()
            self._out[:] = False
        except WorkerError as error:
            self._lost = error
            self._needs_reset = "A worker was lost."
            raise

    def _raise_first_failure(self, name: str, reports: Sequence[Report | None]) -> None:
        if not any(reports):
            return
        failures = [failure for report in reports if report for failure in report.failures]
        if failures:
            self._calm = False
            if name != "call":
                self._needs_reset = f"Environment {failures[0].env_index} failed in {name}()."
            raise as_error(failures[0], self._worker_of(failures[0].env_index))
