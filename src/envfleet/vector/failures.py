"""What went wrong, as data and as errors, and what the user wants done about it.

A ``Failure`` is an exception of one environment: it is noted where the environment runs and raised where the user is.
What becomes of a fleet that has lost a whole worker is in ``recovery.py``.
"""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final, get_args

from envfleet.errors import InvalidOutputError, WorkerError, env_raised, where
from envfleet.vector.arguments import check_timeout, is_integer
from envfleet.vector.layout import LayoutError

START_OVER = 'reset() starts over; with on_failure="restart" the environment would have been made again by itself.'
"""What the user can try after an environment failed in a step or a reset, and was not restarted."""

_ADVICE = {
    "make": "Try whether a single one can be made, outside the fleet.",
    "call": "The fleet goes on as before.",
    "set_attr": "The fleet goes on as before.",
}


@dataclass(slots=True)
class Failure:
    """An exception of one environment, with the traceback from where the environment runs.

    Attributes:
        env_index: The number of the environment.
        method: What failed: "make", "restart", "reset", "step", "call", "set_attr" or "close".
        name: The name of the method that was called, or of the attribute; otherwise empty.
        error: The exception.
        traceback_text: Its traceback, as text; empty for an error that nobody raised.
        note: What was tried to mend it, or what the user can try.
    """

    env_index: int
    method: str
    name: str
    error: BaseException
    traceback_text: str
    note: str = ""

    @staticmethod
    def of(error: BaseException, env_index: int, method: str, name: str = "") -> Failure:
        """Makes a failure of an exception that was just caught."""
        return Failure(env_index, method, name, error, "".join(traceback.format_exception(error)))

    @property
    def activity(self) -> str:
        """Says as code what the environment was doing."""
        return f"{self.method}({self.name!r})" if self.name else f"{self.method}()"


def in_words(env_indices: Sequence[int]) -> str:
    """Returns "environment 3" or "environments 0..3", for environments that follow one another."""
    first, last = env_indices[0], env_indices[-1]
    return f"environment {first}" if first == last else f"environments {first}..{last}"


def as_error(failure: Failure, worker: int | None) -> WorkerError:
    """Returns the error to raise for a failure."""
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


def warn_of_close(failures: Iterable[Failure]) -> None:
    """Warns of environments that raised in close(), which itself never raises."""
    for failure in failures:
        warnings.warn(
            f"Environment {failure.env_index} raised in close(): {failure.error!r}\n{failure.traceback_text}",
            RuntimeWarning,
            stacklevel=2,
        )


STUCK_WARNING_AFTER = 60.0
"""Seconds without a sign of life after which the user is warned, if no timeout says what to do."""


OnFailure: TypeAlias = Literal["raise", "restart"]


@final
@dataclass(frozen=True)
class FailurePolicy:
    """What is done about environments that fail.

    Attributes:
        restart: Whether they are made again in place, instead of raising an error.
        max_restarts: How often one may be made again within ``window`` seconds; None sets no limit.
        window: The seconds within which restarts are counted.
        step_timeout: Seconds that one environment's step, reset or call may take; None sets no limit.
        start_timeout: Seconds that making one environment may take; None sets no limit.
        check_nan: Whether NaN in an observation or a reward is a failure.
    """

    restart: bool = False
    max_restarts: int | None = None
    window: float = math.inf
    step_timeout: float | None = None
    start_timeout: float | None = None
    check_nan: bool = False


def checked_failure_policy(
    on_failure: Any,
    max_restarts: Any,
    restart_window: Any,
    step_timeout: Any = None,
    start_timeout: Any = None,
    *,
    check_nan: Any = False,
) -> FailurePolicy:
    """Checks the user's arguments and returns them as a policy."""
    if on_failure not in get_args(OnFailure):
        raise ValueError(f'`on_failure` must be "raise" or "restart", got {on_failure!r}.')
    if max_restarts is not None and (not is_integer(max_restarts) or max_restarts < 0):
        raise ValueError(f"`max_restarts` must be a number of restarts or None for no limit, got {max_restarts!r}.")
    check_timeout(restart_window, "restart_window")
    check_timeout(step_timeout, "step_timeout")
    check_timeout(start_timeout, "start_timeout")
    if 0 in (restart_window, step_timeout, start_timeout) or restart_window is None:
        raise ValueError("`restart_window`, `step_timeout` and `start_timeout` must be more than 0 seconds.")
    limit = None if max_restarts is None else int(max_restarts)
    return FailurePolicy(
        on_failure == "restart", limit, float(restart_window), step_timeout, start_timeout, bool(check_nan)
    )
