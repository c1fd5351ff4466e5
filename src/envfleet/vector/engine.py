"""What a fleet asks of whoever runs its environments, and what it is told in return."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from envfleet.vector.failures import Failure
from envfleet.vector.infos import InfoReport
from envfleet.vector.pickling import dumps, portable, unpicklable

Options: TypeAlias = "dict[str, Any] | None"


@final
@dataclass(frozen=True)
class ResetOrder:
    """Reset the environments for which ``mask`` holds; one seed and one options dict an environment."""

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


@final
@dataclass(frozen=True)
class CallOrder:
    """Get an attribute of, or call a method of, the environments for which ``mask`` holds."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    mask: npt.NDArray[np.bool_]

    def part(self, first: int, last: int) -> CallOrder:
        """What concerns the environments first..last-1."""
        return CallOrder(self.name, self.args, self.kwargs, self.mask[first:last])


@final
@dataclass(frozen=True)
class SetAttrOrder:
    """Set an attribute of the environments for which ``mask`` holds; one value an environment."""

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
        loose_observations: For each loose leaf of the observation space, one value a row.
        infos: The infos that do not lie in the block.
        results: Of a CallOrder: ``(env index, result)`` for each environment asked.
        failures: In the order of the environments.
    """

    loose_observations: list[list[Any]] = field(default_factory=list)
    infos: InfoReport | None = None
    results: list[tuple[int, Any]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


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
