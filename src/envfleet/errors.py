"""All exceptions of envfleet, as a tree.

::

    FleetError
    ├── DamagedRunError           a file of a training run is damaged or incomplete (also a ValueError)
    ├── FleetInUseError           another call of the fleet has not returned yet (also an AlreadyPendingCallError)
    ├── InvalidActionError        actions refused before anything was sent (also a ValueError)
    ├── NonFiniteError            training or evaluation met a NaN, an infinity or an overflow (also a ValueError)
    ├── RunInUseError             another process or thread is training in that folder
    ├── UnsupportedError          the backend cannot do what was asked (also a TypeError)
    ├── UntrustedRunError         a run of unknown origin names a module to import
    └── WorkerError               something went wrong where the environments run
        ├── EnvRaisedError        an environment raised (also an instance of its exception's type)
        ├── InvalidOutputError    an environment returned what its spaces do not allow (also a ValueError)
        ├── WorkerDiedError       a worker process ended
        └── WorkerStuckError      an environment took longer than step_timeout or start_timeout (also a TimeoutError)

Wrong use of the asynchronous calls raises Gymnasium's own classes, so code written for Gymnasium catches
them: AlreadyPendingCallError, ClosedEnvironmentError, CustomSpaceError, NoAsyncCallError, ResetNeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    CustomSpaceError,
    NoAsyncCallError,
    ResetNeeded,
)

__all__ = [
    "AlreadyPendingCallError",
    "ClosedEnvironmentError",
    "CustomSpaceError",
    "DamagedRunError",
    "EnvRaisedError",
    "FleetError",
    "FleetInUseError",
    "InvalidActionError",
    "InvalidOutputError",
    "NoAsyncCallError",
    "NonFiniteError",
    "ResetNeeded",
    "RunInUseError",
    "UnsupportedError",
    "UntrustedRunError",
    "WorkerDiedError",
    "WorkerError",
    "WorkerStuckError",
]


class FleetError(Exception):
    """The root of envfleet's own errors."""


class FleetInUseError(FleetError, AlreadyPendingCallError):
    """Another call of the fleet has not returned yet, in another thread or in this one; this call did nothing."""


class DamagedRunError(FleetError, ValueError):
    """A file of a training run is damaged or incomplete, or has been changed; nothing was written."""


class RunInUseError(FleetError):
    """Another process, or another thread of this one, is training in the folder; nothing was changed."""


class UnsupportedError(FleetError, TypeError):
    """The backend cannot do what was asked; another one may. The message says what it was."""


class UntrustedRunError(FleetError):
    """A run that was not trained by this user on this machine names a module; nothing was imported."""


class InvalidActionError(FleetError, ValueError):
    """The actions do not fit the action space; nothing was sent and nothing has changed."""


class NonFiniteError(FleetError, ValueError):
    """Training or evaluation met a number that is NaN, infinite, or too large to calculate with.

    Attributes:
        quantity: What the number is: "reward", "observation", "final observation", "action", "critic loss", ...
        env_index: The environment it came from; None if it belongs to no single environment.
        step: In training, the environment steps of the run so far; otherwise the step of the episode; None if
            neither is known.
    """

    def __init__(self, message: str, *, quantity: str, env_index: int | None = None, step: int | None = None) -> None:
        super().__init__(message)
        self.quantity = quantity
        self.env_index = env_index
        self.step = step

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild = partial(type(self), quantity=self.quantity, env_index=self.env_index, step=self.step)
        return rebuild, (self.args[0],)


class WorkerError(FleetError):
    """Something went wrong where the environments run.

    Attributes:
        worker: The number of the worker, or None for environments in the caller's own process.
        env_indices: The indices of the environments concerned.
    """

    def __init__(self, message: str, *, worker: int | None, env_indices: Sequence[int]) -> None:
        super().__init__(message)
        self.worker = worker
        self.env_indices = tuple(env_indices)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args[0], self.worker, self.env_indices)


class EnvRaisedError(WorkerError):
    """An environment raised an exception.

    The error is also an instance of the original exception's type, so ``except AttributeError`` around
    ``get_attr`` works as it does with a single environment.

    Attributes:
        method: What the environment was doing: "make", "reset", "step", "call" or "set_attr".
        activity: The same as code, with the name of the method or attribute.
        traceback_text: The environment's own traceback, from the process where it runs.
        note: What envfleet has tried, or what you can try.
    """

    note: str
    method: str
    activity: str
    traceback_text: str

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        where_and_what = self.method, self.activity, self.worker, self.env_indices[0], self.note
        return _rebuild_raised, (self.__cause__, self.traceback_text, *where_and_what)


class InvalidOutputError(WorkerError, ValueError):
    """An environment returned an observation, reward or flag that its spaces or the API do not allow."""


class WorkerDiedError(WorkerError):
    """A worker process ended without being asked to."""


class WorkerStuckError(WorkerError, TimeoutError):
    """An environment exceeded ``step_timeout``, or ``start_timeout`` while it was made; its worker was ended."""


def where(worker: int | None) -> str:
    """Returns the name of the place where a shard runs, for messages."""
    return "the caller's process" if worker is None else f"worker {worker}"


def env_raised(
    original: BaseException,
    *,
    traceback_text: str,
    method: str,
    activity: str,
    worker: int | None,
    env_index: int,
    note: str = "",
) -> EnvRaisedError:
    """Builds the error for an exception raised by an environment, keeping its type and cause."""
    message = (
        f"Environment {env_index} (in {where(worker)}) raised {type(original).__name__} in {activity}: "
        f"{_text(original)}{note and chr(10) + note}\n\nThe environment's own traceback:\n{traceback_text}"
    )
    error = _new_error(type(original))
    # Not by __init__: the original's may want arguments that nobody knows any more.
    error.args = (message,)
    error.worker, error.env_indices = worker, (env_index,)
    error.method, error.activity = method, activity
    error.traceback_text, error.note = traceback_text, note
    error.__cause__ = original
    return error


def _rebuild(kind: type[WorkerError], message: str, worker: int | None, env_indices: Sequence[int]) -> WorkerError:
    return kind(message, worker=worker, env_indices=env_indices)


def _rebuild_raised(
    original: BaseException,
    traceback_text: str,
    method: str,
    activity: str,
    worker: int | None,
    env_index: int,
    note: str,
) -> EnvRaisedError:
    return env_raised(
        original,
        traceback_text=traceback_text,
        method=method,
        activity=activity,
        worker=worker,
        env_index=env_index,
        note=note,
    )


def _new_error(original: type[BaseException]) -> EnvRaisedError:
    """Returns an empty instance of EnvRaisedError that also has the original type, if Python allows it."""
    if issubclass(original, Exception):  # an error that were a SystemExit too would end the caller's program
        try:
            bases = (EnvRaisedError, original)
            mixed: type[EnvRaisedError] = type(f"EnvRaisedError[{original.__name__}]", bases, {"__module__": __name__})
        except TypeError:
            return EnvRaisedError.__new__(EnvRaisedError)
        for base in mixed.__mro__:
            if "__new__" in vars(base):
                with suppress(TypeError):  # it wants arguments, or Python wants another base's
                    instance: EnvRaisedError = base.__new__(mixed)  # type: ignore[call-overload]
                    return instance
    return EnvRaisedError.__new__(EnvRaisedError)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as trouble:
        return f"(its text could not be made: {type(trouble).__name__})"
