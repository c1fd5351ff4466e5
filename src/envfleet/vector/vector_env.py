"""What every vector environment shares: the contract, whatever runs the environments.

A backend (sync, process, …) subclasses ``FleetVectorEnv`` and only passes turns: ``_begin(order)`` sets its
shards to work, ``_finish(timeout)`` waits for them. Everything users can see is decided here, once.
"""

from __future__ import annotations

import multiprocessing
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    InvalidActionError,
    NoAsyncCallError,
    ResetNeeded,
    WorkerDiedError,
)
from envfleet.randomize import ParameterTable
from envfleet.vector import arguments
from envfleet.vector.buffers import LayoutError
from envfleet.vector.failures import as_error
from envfleet.vector.fleet_buffers import Buffers
from envfleet.vector.infos import Info
from envfleet.vector.orders import CallOrder, Order, Report, ResetOrder, SetAttrOrder, StepOrder
from envfleet.vector.spaces import FleetSpaces

if TYPE_CHECKING:
    from typing_extensions import Self

Seed: TypeAlias = "int | Sequence[int | None] | None"
Options: TypeAlias = "dict[str, Any] | Sequence[dict[str, Any] | None] | None"
Indices: TypeAlias = "int | Sequence[int] | npt.NDArray[np.integer[Any]] | None"
StepResult: TypeAlias = tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], Info]

_PLAIN_STEP = StepOrder()
_RESERVED_CALLS = ("reset", "step", "close")


@dataclass(slots=True)
class _Pending:
    """An order under way: what was asked, and by which of the asynchronous calls."""

    name: str
    order: Order
    asked: Sequence[int] = ()


class FleetVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]], ABC):
    """Many environments behind one batched Gymnasium interface.

    Shapes: with ``n = num_envs``, observations are ``(n, *shape)`` arrays (or dicts and tuples of them),
    rewards float64 ``(n,)``, terminated and truncated bool ``(n,)``.

    Attributes:
        plan: One sentence: what runs the environments, and why.
        parameters: The randomised parameters of each environment, or None.
    """

    plan: str
    parameters: ParameterTable | None = None

    def _set_up(self, spaces: FleetSpaces, buffers: Buffers, *, copy: bool) -> None:
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
        self._buffers = buffers
        self._pending: _Pending | None = None
        self._finished = np.zeros(self.num_envs, np.bool_)
        self._needs_reset: str | None = None
        self._interrupted = False
        self._lost: WorkerDiedError | None = None

    # -- the backend's part ---------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, order: Order) -> None:
        """Sets the shards to work on ``order``."""

    @abstractmethod
    def _finish(self, timeout: float | None) -> Sequence[Report | None]:
        """Waits for all shards and returns their reports; a TimeoutError loses nothing."""

    @abstractmethod
    def _is_busy(self) -> bool:
        """Whether something was begun and not yet finished."""

    @abstractmethod
    def _discard(self) -> None:
        """Waits for work that was begun and never finished, and forgets it."""

    @abstractmethod
    def _shut_down(self, timeout: float | None, terminate: bool) -> None:
        """Ends everything that runs; never raises, takes a bounded time."""

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
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(self, seed: Seed = None, options: Options = None) -> None:
        """Starts a reset; :meth:`reset_wait` collects it. Arguments as for :meth:`reset`."""
        self._check_idle("reset_async")
        seeds = arguments.seeds(seed, self.num_envs)
        mask, per_env = arguments.reset_options(options, self.num_envs)
        if self._needs_reset is not None and not mask.all():
            raise ResetNeeded(f"{self._needs_reset} A masked reset is not enough: call reset() without reset_mask.")
        self._start("reset", ResetOrder(seeds, per_env, mask))

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Info]:
        """Waits at most ``timeout`` seconds for the reset under way and returns what :meth:`reset` does."""
        pending, reports = self._collect("reset", timeout)
        assert isinstance(pending.order, ResetOrder)
        infos = self._buffers.infos(reports)
        self._needs_reset = None
        self._raise_first_failure(pending.name, reports)
        self._finished[pending.order.mask] = False
        return self._buffers.observations(self.copy), infos

    # -- step -----------------------------------------------------------------------------------------

    def step(self, actions: Any) -> StepResult:
        """Steps all environments.

        Args:
            actions: An element of ``action_space``: for each leaf an array of shape (num_envs, *shape).

        Returns:
            Observations, rewards (float64), terminateds, truncateds (bool), infos.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Starts a step; :meth:`step_wait` collects it. Refused actions change nothing."""
        self._check_idle("step_async")
        if self._needs_reset is not None:
            raise ResetNeeded(f"{self._needs_reset} Call reset() before the next step.")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._finished.any():
            finished = np.flatnonzero(self._finished).tolist()
            raise ResetNeeded(
                f"The episodes of environments {finished} have ended and autoreset is disabled. Call "
                'reset(options={"reset_mask": mask}) for them first; nothing was stepped.'
            )
        try:
            loose_actions = self._buffers.store_actions(actions)
        except LayoutError as error:
            raise InvalidActionError(
                f"The actions do not fit the action space {self.action_space}. {error}. Nothing was stepped."
            ) from error
        self._start("step", StepOrder(loose_actions) if loose_actions else _PLAIN_STEP)

    def step_wait(self, timeout: float | None = None) -> StepResult:
        """Waits at most ``timeout`` seconds for the step under way and returns what :meth:`step` does.

        When the time runs out a ``multiprocessing.TimeoutError`` is raised and the step stays under way:
        call ``step_wait`` again to collect it.
        """
        pending, reports = self._collect("step", timeout)
        buffers = self._buffers
        infos = buffers.infos(reports)
        self._raise_first_failure(pending.name, reports)
        terminated, truncated = buffers.terminated.copy(), buffers.truncated.copy()
        np.logical_or(terminated, truncated, out=self._finished)
        return buffers.observations(self.copy), buffers.rewards.copy(), terminated, truncated, infos

    # -- calls and attributes -------------------------------------------------------------------------

    def call(self, name: str, /, *args: Any, indices: Indices = None, **kwargs: Any) -> tuple[Any, ...]:
        """Calls the method ``name`` (or reads the attribute) of every environment, or of ``indices``.

        An error in one environment is raised after all were asked and leaves the fleet usable.
        """
        self.call_async(name, *args, indices=indices, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, indices: Indices = None, **kwargs: Any) -> None:
        """Starts a call; :meth:`call_wait` collects it."""
        self._check_idle("call_async")
        if name in _RESERVED_CALLS:
            raise ValueError(f"call({name!r}) would bypass the fleet's bookkeeping: use envs.{name}() instead.")
        asked = arguments.env_indices(indices, self.num_envs)
        self._start("call", CallOrder(name, args, kwargs, arguments.mask_of(asked, self.num_envs)), asked)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Waits at most ``timeout`` seconds for the call under way; one result an environment asked."""
        pending, reports = self._collect("call", timeout)
        self._raise_first_failure(pending.name, reports)
        results = {env: result for report in reports if report for env, result in report.results}
        return tuple(results[env] for env in pending.asked)

    def get_attr(self, name: str, indices: Indices = None) -> tuple[Any, ...]:
        """The attribute ``name`` of every environment, or of ``indices``; methods are called."""
        return self.call(name, indices=indices)

    def set_attr(self, name: str, values: Any, indices: Indices = None) -> None:
        """Sets the attribute ``name``: a list or tuple gives one value an environment, else all get it."""
        self._check_idle("set_attr")
        asked = arguments.env_indices(indices, self.num_envs)
        per_env = arguments.spread(values, asked, self.num_envs)
        self._start("call", SetAttrOrder(name, per_env, arguments.mask_of(asked, self.num_envs)))
        self.call_wait()

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
        """Closes all environments and ends all workers. May be called in any state, any number of times.

        Args:
            timeout: Seconds to wait for work under way and for the environments' own ``close`` (default 5);
                workers that need longer are killed.
            terminate: Kill the workers at once.
        """
        arguments.check_timeout(timeout)
        if not self.closed:
            self.closed = True
            self._shut_down(timeout, terminate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the state machine ----------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{type(self).__name__} is closed: make a new one.")

    def _check_idle(self, call: str) -> None:
        self._check_open()
        if self._lost is not None:
            raise self._lost.with_traceback(None)
        if self._interrupted:
            self._discard_work()
            self._interrupted = False
        if self._pending is not None:
            name = self._pending.name
            raise AlreadyPendingCallError(
                f"{call}() while a {name} is under way: collect it with {name}_wait() first.", name
            )

    def _start(self, name: str, order: Order, asked: Sequence[int] = ()) -> None:
        pending = _Pending(name, order, asked)
        try:
            self._begin(order)
            self._pending = pending
        except BaseException as error:
            if self._is_busy():  # interrupted on the way, not refused
                self._give_up(pending, error)
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
            self._give_up(pending, error)
            raise
        self._pending = None
        return pending, reports

    def _give_up(self, pending: _Pending, error: BaseException) -> None:
        """After a Ctrl-C the work under way is forgotten; after a death nothing goes any more."""
        self._pending = None
        if isinstance(error, WorkerDiedError):
            self._lost = error
            return
        self._interrupted = True
        if pending.name != "call":
            self._needs_reset = f"The last {pending.name} was interrupted."

    def _discard_work(self) -> None:
        try:
            self._discard()
        except WorkerDiedError as error:
            self._lost = error
            raise

    def _raise_first_failure(self, call: str, reports: Sequence[Report | None]) -> None:
        failures = [failure for report in reports if report for failure in report.failures]
        if failures:
            if call != "call":
                self._needs_reset = f"Environment {failures[0].env_index} failed in {call}()."
            raise as_error(failures[0], self._worker_of(failures[0].env_index))
