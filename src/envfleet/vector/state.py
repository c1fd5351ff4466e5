"""Where a fleet stands between two calls, and which calls are allowed there.

at rest ──step, reset, call──▶ under way (``pending``) ──wait──▶ at rest
at rest ──send, async_reset──▶ tickets out             ──recv──▶ at rest
anywhere ──Ctrl-C──▶ interrupted: the next call waits for the work under way and forgets it; then reset
anywhere ──a worker is lost──▶ lost: only reset, which starts it again
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet.errors import AlreadyPendingCallError, NoAsyncCallError, ResetNeeded, WorkerError
from envfleet.vector import arguments
from envfleet.vector.engine import PLAIN_STEP, Engine, Order, QuickCalls, Report, ResetOrder, Rows, first_failure
from envfleet.vector.failures import Failure, as_error


@dataclass(frozen=True, slots=True)
class Pending:
    """An order under way.

    Attributes:
        name: The kind of call: "step", "reset" or "call".
        order: What was asked.
        waited_for: Whether the call that began it also waits for it.
        asked: The environments that a call asked, in the order asked.
    """

    name: str
    order: Order
    waited_for: bool
    asked: Sequence[int] = ()


_PLAIN_PENDING = Pending("step", PLAIN_STEP, waited_for=True)


@final
class FleetState:
    """The state machine of one fleet. ``needs_reset`` says why nothing but a reset is possible, if that is so."""

    def __init__(
        self, engine: Engine, quick: QuickCalls, autoreset_mode: AutoresetMode, needs_reset: str | None
    ) -> None:
        self._engine, self._quick = engine, quick
        self._ends_matter = autoreset_mode is AutoresetMode.DISABLED
        self._finished, self._out = engine.block.finished, engine.block.out
        self._needs_reset = needs_reset
        self._pending: Pending | None = None
        self._interrupted = False
        self._lost: WorkerError | None = None

    # -- before a call --------------------------------------------------------------------------------

    def enter(self) -> None:
        """Begins a call that is not a quick one; raises what a quick call before it left to be raised."""
        self._quick.ready = False
        error = self._quick.take_error()
        if isinstance(error, Failure):
            self.raise_failure("step", error)
        elif error is not None:
            self.give_up("step", error)

    def enter_idle(self, call: str, *, tickets_may_be_out: bool = False) -> None:
        """The same for a call that needs the fleet at rest."""
        self.enter()
        self._check_idle(call, tickets_may_be_out)

    def _check_idle(self, call: str, tickets_may_be_out: bool = False) -> None:
        self._check_not_lost()
        if self._pending is not None and self._pending.waited_for:  # an interruption came between start and wait
            self.give_up(self._pending.name, KeyboardInterrupt())
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

    def enter_reset(self, call: str, mask: npt.NDArray[np.bool_]) -> None:
        """Begins a reset: revives the fleet, if need be, and forgets tickets under way.

        A masked reset forgets nothing: those it leaves alone must not lose a step.
        """
        if self._needs_reset is not None and not mask.all():
            raise ResetNeeded(f"{self._needs_reset} A masked reset is not enough: call reset() without reset_mask.")
        if self._lost is not None:
            self._engine.recover()
            self._lost, self._interrupted = None, False
            self._out[:] = False
        elif self._out.any() and self._pending is None and mask.all():
            self._discard_work()
            self._out[:] = False
        self._check_idle(call)

    def check_may_step(self, rows: Rows | None = None) -> None:
        """Refuses steps of environments that have to be reset first."""
        if self._needs_reset is not None:
            raise ResetNeeded(f"{self._needs_reset} Call reset() before the next step.")
        if not self._ends_matter:
            return
        finished = np.flatnonzero(self._finished) if rows is None else rows[self._finished[rows]]
        if len(finished):
            raise ResetNeeded(
                f"The episodes of environments {sorted(finished.tolist())} have ended and autoreset is disabled. Call "
                'reset(options={"reset_mask": mask}) or async_reset(env_ids=…) for them first; nothing was stepped.'
            )

    def check_may_send(self, rows: Rows) -> None:
        """Refuses to send to environments that are at work."""
        self.check_may_step(rows)
        self._check_not_out("send() to", "send", rows)

    def check_may_reset(self, rows: Rows) -> None:
        """Refuses to reset single environments that are at work, or where all have to be reset."""
        if self._needs_reset is not None:
            raise ResetNeeded(
                f"{self._needs_reset} To reset some environments is not enough: call reset(), or async_reset() without "
                "env_ids."
            )
        self._check_not_out("async_reset() of", "async_reset", rows)

    def _check_not_out(self, what: str, call: str, rows: Rows) -> None:
        if self._out[rows].any():
            raise AlreadyPendingCallError(
                f"{what} environments {rows[self._out[rows]].tolist()}, which are still at work: each has to come "
                "back from recv() first. Nothing was sent.",
                call,
            )

    def _check_not_lost(self) -> None:
        if self._lost is not None:
            raise self._lost.with_traceback(None)

    # -- a turn: all environments ---------------------------------------------------------------------

    def start(self, name: str, order: Order, asked: Sequence[int] = (), *, waited_for: bool = False) -> None:
        """Has the engine begin an order."""
        plain = order is PLAIN_STEP and waited_for
        pending = _PLAIN_PENDING if plain else Pending(name, order, waited_for, asked)
        try:
            self._engine.begin(order)
            self._pending = pending
        except BaseException as error:
            if self._engine.is_busy:  # interrupted on the way, not refused
                self.give_up(name, error)
            raise

    def collect(self, name: str, timeout: float | None) -> tuple[Pending, Sequence[Report | None]]:
        """Waits for what was begun by a call of this name; raises the first failure of an environment."""
        if self._pending is None or self._pending.name != name:
            raise NoAsyncCallError(f"{name}_wait() without {name}_async(): no {name} is under way.", name)
        self._check_not_lost()
        arguments.check_timeout(timeout)
        pending = self._pending
        try:
            reports = self._engine.finish(timeout)
        except multiprocessing.TimeoutError:
            raise  # still under way, to be collected later
        except BaseException as error:
            self.give_up(name, error)
            raise
        self._pending = None
        if name == "reset":
            self._needs_reset = None
        self._raise_first_failure(name, reports)
        return pending, reports

    # -- tickets: single environments -----------------------------------------------------------------

    def send(self, rows: Rows, send: Callable[[], None], *, resets: bool = False) -> None:
        """Has the engine send what it has prepared for these environments."""
        if resets:
            self._needs_reset = None
        try:
            self._out[rows] = True
            self.rest()
            send()  # an engine that cannot go on says so by itself
        except BaseException as error:
            self.give_up("step", error)
            raise

    def receive(self, most: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:
        """The first results, ``most`` of them or as many as environments are at work."""
        self._check_not_lost()
        if self._needs_reset is not None:
            raise ResetNeeded(f"{self._needs_reset} Call reset() before the next step.")
        arguments.check_timeout(timeout)
        count = min(most, int(np.count_nonzero(self._out)))
        if count == 0:
            name = self._pending and self._pending.name
            what = f"a {name} is under way, which {name}_wait() collects" if name else "no environment is at work"
            raise NoAsyncCallError(f"recv() without send() or async_reset(): {what}.", "recv")
        try:
            rows, reports = self._engine.receive(count, timeout)
            self._out[rows] = False
        except multiprocessing.TimeoutError:
            raise
        except BaseException as error:
            self.give_up("step", error)
            raise
        self._raise_first_failure("step", reports)
        return rows, reports

    # -- after a call ---------------------------------------------------------------------------------

    def note_resets(self, order: ResetOrder) -> None:
        """These environments have begun new episodes."""
        self._finished[order.mask] = False

    def note_ends(self, rows: Rows | None = None) -> None:
        """Notes whose episodes have ended, where that matters to the next step."""
        if not self._ends_matter:
            return
        block, where = self._engine.block, slice(None) if rows is None else rows
        self._finished[where] = block.terminated[where] | block.truncated[where]

    def require_reset(self, reason: str) -> None:
        """Allows nothing but a reset; ``reason`` is a sentence."""
        self._needs_reset, self._quick.ready = reason, False

    def rest(self) -> None:
        """The call went well: the next may be a quick one, unless Python would have to look at tickets first."""
        looks_after_tickets = self._quick.send is not None
        self._quick.ready = self._needs_reset is None and (looks_after_tickets or not self._out.any())

    def give_up(self, name: str, error: BaseException) -> None:
        """After a Ctrl-C the work under way is forgotten; after a death only reset() helps."""
        self._pending, self._quick.ready = None, False
        if isinstance(error, WorkerError):
            self._lost = error
            self._needs_reset = "A worker was lost."
            return
        self._interrupted = True
        if name != "call":
            self._needs_reset = f"The last {name} was interrupted."

    def _discard_work(self) -> None:
        try:
            self._engine.discard()
            self._out[:] = False
        except BaseException as error:
            self.give_up("reset", error)
            raise

    def _raise_first_failure(self, name: str, reports: Sequence[Report | None]) -> None:
        failure = first_failure(reports)
        if failure is not None:
            self.raise_failure(name, failure)

    def raise_failure(self, name: str, failure: Failure) -> None:
        """Raises what an environment did wrong in a call of this name."""
        if name != "call":
            self._needs_reset = f"Environment {failure.env_index} failed in {name}()."
        raise as_error(failure, self._engine.worker_of(failure.env_index))
