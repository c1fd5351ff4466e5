"""What went wrong in an environment: noted where it runs, raised where the user is."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from envfleet.errors import InvalidOutputError, WorkerError, env_raised, where
from envfleet.vector.layout import LayoutError

Answer = TypeVar("Answer")

START_OVER = 'reset() starts over; with on_failure="restart" the environment would have been made again by itself.'
"""What to try when an environment failed in a step or a reset and nothing was done about it."""

_ADVICE = {
    "make": "Try whether a single one can be made, outside the fleet.",
    "call": "The fleet goes on as before.",
    "set_attr": "The fleet goes on as before.",
}


@dataclass(slots=True)
class Failure:
    """An exception of one environment, with the traceback from where it runs.

    Attributes:
        method: "make", "restart", "reset", "step", "call", "set_attr" or "close".
        name: Of a call or an attribute.
        note: What was tried about it, or what to try.
    """

    env_index: int
    method: str
    name: str
    error: BaseException
    traceback_text: str
    note: str = ""

    @staticmethod
    def of(error: BaseException, env_index: int, method: str, name: str = "") -> Failure:
        """Notes an exception just caught."""
        return Failure(env_index, method, name, error, "".join(traceback.format_exception(error)))

    @property
    def activity(self) -> str:
        """What the environment was doing, as code."""
        return f"{self.method}({self.name!r})" if self.name else f"{self.method}()"


def as_error(failure: Failure, worker: int | None) -> WorkerError:
    """The error to raise for a failure."""
    if isinstance(failure.error, WorkerError) and not failure.traceback_text:
        return failure.error  # raised by nobody: it is how a worker's end is told
    note = _note(failure, worker)
    if isinstance(failure.error, LayoutError):
        return InvalidOutputError(
            f"Environment {failure.env_index} (in {where(worker)}) returned from {failure.activity} what does not "
            f"fit its spaces. {failure.error}.{note and ' ' + note}",
            worker=worker,
            env_indices=(failure.env_index,),
        )
    return env_raised(
        failure.error,
        traceback_text=failure.traceback_text,
        method=failure.method,
        activity=failure.activity,
        note=note,
        worker=worker,
        env_index=failure.env_index,
    )


def _note(failure: Failure, worker: int | None) -> str:
    if not failure.note:
        return _ADVICE.get(failure.method, "")
    return failure.note if worker is None else f"{failure.note} Debuggers work in SyncVectorEnv."


def unless_failed(answer: Answer | Failure, worker: int) -> Answer:
    """What a worker answered, or the error to raise for the failure that it reports instead."""
    if isinstance(answer, Failure):
        raise as_error(answer, worker)
    return answer


def warn_of_close(failures: Iterable[Failure]) -> None:
    """Tells of environments that raised in close(): close() itself never raises."""
    for failure in failures:
        warnings.warn(
            f"Environment {failure.env_index} raised in close(): {failure.error!r}\n{failure.traceback_text}",
            RuntimeWarning,
            stacklevel=2,
        )
