"""The seam between a fleet and whoever runs its environments: orders, reports, and the ``Engine`` protocol.

A fleet (``vector_env.py``) decides what is allowed and what users see. An engine only passes turns: it sets its
environments to work on an order, waits for them, and tells what it could not write into its block.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet import _core
from envfleet.vector.failures import Failure
from envfleet.vector.infos import Info, InfoReport
from envfleet.vector.pickling import dumps, portable, unpicklable

Options: TypeAlias = "dict[str, Any] | None"
Rows: TypeAlias = npt.NDArray[np.intp]
StepResult: TypeAlias = tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], Info]


@final
@dataclass(frozen=True)
class ResetOrder:
    """Reset the environments for which ``mask`` holds; one seed and one options dict per environment."""

    seeds: Sequence[int | None]
    options: Sequence[Options]
    mask: npt.NDArray[np.bool_]

    def part(self, first: int, last: int) -> ResetOrder:
        """What concerns the environments first..last-1."""
        return ResetOrder(self.seeds[first:last], self.options[first:last], self.mask[first:last])


@final
@dataclass(frozen=True)
class StepOrder:
    """Step every environment. ``loose_actions``: for each loose leaf of the action space, one value each."""

    loose_actions: Sequence[Sequence[Any]] = ()

    def part(self, first: int, last: int) -> StepOrder:
        """What concerns the environments first..last-1."""
        return StepOrder([values[first:last] for values in self.loose_actions]) if self.loose_actions else self


PLAIN_STEP = StepOrder()
"""A step with nothing beside the block."""


@final
@dataclass(frozen=True)
class CallOrder:
    """Get an attribute of, or call a method of, the environments for which ``mask`` holds.

    With a ``function``, that is called instead, with each environment first; ``name`` is only what errors call it.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    mask: npt.NDArray[np.bool_]
    function: Callable[..., Any] | None = None

    def part(self, first: int, last: int) -> CallOrder:
        """What concerns the environments first..last-1."""
        return CallOrder(self.name, self.args, self.kwargs, self.mask[first:last], self.function)


@final
@dataclass(frozen=True)
class SetAttrOrder:
    """Set an attribute of the environments for which ``mask`` holds; one value per environment."""

    name: str
    values: Sequence[Any]
    mask: npt.NDArray[np.bool_]

    def part(self, first: int, last: int) -> SetAttrOrder:
        """What concerns the environments first..last-1."""
        return SetAttrOrder(self.name, self.values[first:last], self.mask[first:last])


Order: TypeAlias = ResetOrder | StepOrder | CallOrder | SetAttrOrder


@dataclass(slots=True)
class Report:
    """A shard's answer to an order, as far as it does not lie in the block.

    Attributes:
        loose_observations: For each loose leaf of the observation space, one value per row.
        infos: The infos that do not lie in the block.
        results: Of a CallOrder: ``(env index, result)`` for each environment asked.
        failures: In the order of the environments.
    """

    loose_observations: list[list[Any]] = field(default_factory=list)
    infos: InfoReport | None = None
    results: list[tuple[int, Any]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def is_turn(order: Order) -> bool:
    """Whether an order has environments act, so that they show something new."""
    return isinstance(order, StepOrder | ResetOrder)


def first_failure(reports: Sequence[Report | None]) -> Failure | None:
    """What the first environment that failed did wrong, or None."""
    return next((failure for report in reports if report for failure in report.failures), None)


def dump_failure(failure: Failure) -> bytes:
    """Pickles a failure with an exception that can be unpickled."""
    failure.error = portable(failure.error)
    return dumps(failure)


def dump_report(report: Report, first_index: int, row: int = 0) -> bytes:
    """Pickles a report; what cannot be pickled becomes a failure that says whose and what it was.

    Args:
        report: Of the shard whose first environment has the number ``first_index``.
        first_index: See there.
        row: Of the shard's environments the one it is about, or the first of them.
    """
    for failure in report.failures:
        failure.error = portable(failure.error)
    try:
        return dumps(report)
    except (Exception, SystemExit):
        return dumps(_portable_part(report, first_index, row))


def load_report(payload: bytes | None, env_index: int, method: str = "call") -> Report | None:
    """The report, if there is one; what cannot be unpickled here becomes a failure of the environment ``env_index``."""
    if not payload:
        return None
    try:
        report: Report = pickle.loads(payload)
    except Exception as error:
        failure = Failure.of(error, env_index, method)
        failure.note = "What it returned cannot be unpickled in the caller's process: return plain data."
        return Report(failures=[failure])
    return report


def _portable_part(report: Report, first_index: int, row: int) -> Report:
    report.results = _keep_portable(report.results, report, "call")
    if report.infos is not None:
        carried = [(first_index + row, info) for row, info in report.infos.carried.items()]
        report.infos.carried = {env - first_index: info for env, info in _keep_portable(carried, report, "step")}
    for values in report.loose_observations:
        kept = dict(_keep_portable(list(enumerate(values, first_index + row)), report, "step"))
        values[:] = [kept.get(env) for env in range(first_index + row, first_index + row + len(values))]
    return report


def _keep_portable(items: list[tuple[int, Any]], report: Report, method: str) -> list[tuple[int, Any]]:
    kept = []
    for env_index, value in items:
        try:
            dumps(value)
            kept.append((env_index, value))
        except (Exception, SystemExit) as error:
            report.failures.append(Failure.of(unpicklable(value, error), env_index, method))
    return kept


# -- what a fleet has -------------------------------------------------------------------------------------


class Block(Protocol):
    """The arrays of a fleet, one row per environment, whoever writes them.

    Attributes:
        finished: Whether each environment's episode has ended; kept by the fleet.
        out: Whether each environment is at work on a ticket; kept by the fleet.
    """

    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    finished: npt.NDArray[np.bool_]
    out: npt.NDArray[np.bool_]

    def store_actions(self, actions: Any, rows: Rows | None = None, *, were_tried: bool = False) -> list[list[Any]]:
        """Checks all actions, then writes them into all rows, or into the given ones.

        ``were_tried``: whether they were given to a quick step before, if there are any.

        Returns those of the loose leaves, which travel beside the block.
        """

    def observations(self, copy: bool) -> Any:
        """The batched observations: fresh arrays, or live views that the next step overwrites."""

    def reset_results(self, reports: Sequence[Report | None], copy: bool) -> tuple[Any, Info]:
        """What ``reset`` returns of the turn that just ended."""

    def step_results(self, reports: Sequence[Report | None], copy: bool) -> StepResult:
        """What ``step`` returns of the turn that just ended."""

    def ticket_results(self, rows: Rows, reports: Sequence[Report | None]) -> StepResult:
        """What ``recv`` returns of the given environments; fresh arrays."""

    def parameter_cells(self) -> npt.NDArray[np.float64]:
        """The parameters drawn for the present episodes, as numbers: float64[num_envs, parameters]."""


class QuickCalls(Protocol):
    """The shortest ways through an engine, for fleets at rest. Each takes the fleet's ``exclusive`` itself.

    Attributes:
        ready: Whether the last call went well, so that nothing needs to be checked before the next one. Set by the
            fleet. A quick call that does not go well sets it to False.
    """

    ready: bool

    @property
    def step(self) -> Callable[[Any, bool], StepResult | None]:
        """``step(actions, copy)``: a whole step. None (or False) if it has to be taken the ordinary way."""

    @property
    def send(self) -> Callable[[Any, Any], bool] | None:
        """``send(actions, env_ids)``: whether they were sent. None if there is no quick way."""

    @property
    def recv(self) -> Callable[[int], StepResult | None] | None:
        """``recv(batch_size)``: results, or None (or False) for the ordinary way. None if there is no quick way."""

    def take_error(self) -> BaseException | Failure | None:
        """How the last quick call ended, if it did not end well; forgets it."""


class Engine(Protocol):
    """Runs the environments of one fleet."""

    @property
    def exclusive(self) -> _core.Exclusive:
        """Lets one thread at a time into the calls of the fleet; tells waits that the fleet is to close."""

    @property
    def block(self) -> Block:
        """What the environments read and write."""

    @property
    def quick(self) -> QuickCalls:
        """The shortest ways."""

    @property
    def is_busy(self) -> bool:
        """Whether a turn was begun and not yet finished."""

    def begin(self, order: Order) -> None:
        """Sets all environments to work; an order that cannot be begun is refused before anything happens."""

    def finish(self, timeout: float | None) -> Sequence[Report | None]:
        """Waits until all are done, and returns one report (or None) per shard; a TimeoutError loses nothing."""

    def prepare_steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:
        """Packs what has the given environments stepped; returns what sends it, which refuses nothing.

        ``loose_actions`` as in a StepOrder, one value per row.
        """

    def prepare_resets(self, rows: Rows, order: ResetOrder) -> Callable[[], None]:
        """The same for resets of the given environments, which are those in the order's mask, one by one."""

    def receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:
        """The first ``count`` results and their reports; a TimeoutError loses nothing."""

    def discard(self) -> None:
        """Waits for work that was begun and never finished, and forgets it."""

    def recover(self) -> None:
        """Replaces what died, and forgets all work under way."""

    def close(self, timeout: float, terminate: bool) -> None:
        """Ends everything that runs; never raises, takes a bounded time."""

    def interrupt(self) -> None:
        """Ends, from another thread, what the thread inside the fleet waits for; that thread then closes."""

    def worker_of(self, env_index: int) -> int | None:
        """The worker that an environment runs in, None for the caller's process."""


@final
class NoQuickCalls:
    """For engines in which every call has more to do than to pass results on."""

    send = recv = None

    def __init__(self) -> None:
        self.ready = False

    def step(self, actions: Any, copy: bool) -> None:
        """Never quick."""

    def take_error(self) -> None:
        """There is none."""
