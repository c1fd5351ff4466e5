"""What travels between processes beside the block, pickled so that it arrives, or says why it could not."""

from __future__ import annotations

import pickle
from typing import Any, final

import cloudpickle

from envfleet.vector.failures import Failure
from envfleet.vector.engine import Report


def dumps(value: Any) -> bytes:
    """Pickles any value, by cloudpickle where pickle does not do."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except (Exception, SystemExit):  # classes and functions of the main module, lambdas
        return dumps_by_value(value)


def dumps_by_value(value: Any) -> bytes:
    """Pickles any value for a process whose main module is not ours: what ours defines goes along."""
    payload: bytes = cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return payload


def dump_failure(failure: Failure) -> bytes:
    """Pickles a failure with an exception that can be unpickled."""
    failure.error = _portable(failure.error)
    return dumps(failure)


def dump_report(report: Report, first_index: int, row: int = 0) -> bytes:
    """Pickles a report; what cannot be pickled becomes a failure that says whose and what it was.

    Args:
        report: Of the shard whose first environment has the number ``first_index``.
        first_index: See there.
        row: Of the shard's environments the one it is about, or the first of them.
    """
    for failure in report.failures:
        failure.error = _portable(failure.error)
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
            report.failures.append(Failure.of(_unpicklable(value, error), env_index, method))
    return kept


def _unpicklable(value: Any, error: BaseException) -> TypeError:
    what = f"{_shown(value):.200} ({_shown(error)})"
    return TypeError(
        f"What the environment returned cannot be sent to the caller's process: {what}. "
        "Return plain data, or use SyncVectorEnv, which shares memory with its environments."
    )


def _shown(value: Any) -> str:
    """The value as text, however it resists."""
    try:
        return str(value) if isinstance(value, BaseException) else repr(value)
    except (Exception, SystemExit) as trouble:
        return f"a {type(value).__name__} that cannot be shown: {type(trouble).__name__}"


def _portable(error: BaseException) -> BaseException:
    """The exception itself where it survives the way to the caller, else the closest thing that does."""
    for candidate in (error, _BareError(error)):
        try:
            pickle.loads(dumps(candidate))
            return candidate
        except (Exception, SystemExit):
            continue
    return RuntimeError(f"{type(error).__name__}: {_shown(error)}")


@final
class _BareError(Exception):
    """An exception that is rebuilt without its constructor, which may want other arguments than ``args``."""

    def __init__(self, error: BaseException) -> None:
        self._parts = type(error), error.args, dict(vars(error))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self._parts


def _rebuild(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error
