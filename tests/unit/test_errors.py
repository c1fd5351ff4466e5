"""An environment's exception keeps its type, its text and its cause on the way to the user."""

from __future__ import annotations

import builtins
import copy
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import pytest

from envfleet import AsyncVectorEnv, SyncVectorEnv, errors
from envfleet.errors import (
    EnvRaisedError,
    FleetError,
    InvalidActionError,
    InvalidOutputError,
    WorkerDiedError,
    WorkerError,
)
from envfleet.testing.envs import CounterConfig, CounterEnv


class NeedsArgumentsError(Exception):
    """Cannot be made without its arguments, nor from ``args`` alone."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"code {code}: {hint}")
        self.code = code


class SlottedError(ValueError):
    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


class SpeechlessError(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class OwnNewError(Exception):
    def __new__(cls, first: int, second: int) -> OwnNewError:
        return super().__new__(cls, first, second)


EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("bad value", 3),
    "KeyError": lambda: KeyError("missing key"),
    "IndexError": lambda: IndexError("out of range"),
    "AttributeError": lambda: AttributeError("no such thing"),
    "ZeroDivisionError": lambda: ZeroDivisionError("by zero"),
    "AssertionError": AssertionError,
    "NotImplementedError": NotImplementedError,
    "StopIteration": lambda: StopIteration("over"),
    "RecursionError": lambda: RecursionError("too deep"),
    "MemoryError": lambda: MemoryError("too much"),
    "OSError": lambda: OSError(5, "input/output", "file"),
    "FileNotFoundError": lambda: FileNotFoundError(2, "not there", "file"),
    "BlockingIOError": lambda: BlockingIOError(11, "later", 5),
    "TimeoutError": lambda: TimeoutError("too late"),
    "BrokenPipeError": lambda: BrokenPipeError("nobody listens"),
    "EOFError": lambda: EOFError("the end"),
    "ImportError": lambda: ImportError("no module", name="module", path="path"),
    "SyntaxError": lambda: SyntaxError("not Python", ("file", 1, 2, "text")),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "not text"),
    "UnicodeEncodeError": lambda: UnicodeEncodeError("ascii", "ä", 0, 1, "not ASCII"),
    "JSONDecodeError": lambda: json.JSONDecodeError("not JSON", "{", 1),
    "slotted": lambda: SlottedError("here"),
    "own __new__": lambda: OwnNewError(1, 2),
    "needs arguments": lambda: NeedsArgumentsError(7, hint="try again"),
}
ALL = list(EXCEPTIONS)
PICKLABLE = ALL[:-1]


class RaisingEnv(CounterEnv):
    def fail(self, name: str) -> None:
        try:
            raise LookupError("the reason behind it")
        except LookupError as reason:
            raise EXCEPTIONS[name]() from reason

    def fail_locked(self) -> None:
        raise RuntimeError("holds a lock", threading.Lock())

    def fail_speechless(self) -> None:
        raise SpeechlessError

    def fail_in_a_group(self) -> None:
        group: Any = builtins.ExceptionGroup  # type: ignore[attr-defined]  # new in Python 3.11
        raise group("several", [ValueError("one"), TypeError("two")])


@pytest.fixture(scope="module", params=["sync", "process"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Any]:
    fns = [lambda i=i: RaisingEnv(CounterConfig(index=i)) for i in range(3)]
    engine: Any = SyncVectorEnv if request.param == "sync" else AsyncVectorEnv
    kwargs = {} if request.param == "sync" else {"num_workers": 3, "context": "fork"}
    with engine(fns, **kwargs) as envs:
        yield envs


def caught_from(fleet: Any, method: str, *arguments: Any) -> EnvRaisedError:
    with pytest.raises(EnvRaisedError) as caught:
        fleet.call(method, *arguments, indices=[1, 2])
    assert fleet.get_attr("index") == (0, 1, 2), "a failed call must leave the fleet usable"
    return caught.value


def check_is_what_it_was(error: EnvRaisedError, original: BaseException, worker: int | None) -> None:
    assert isinstance(error, type(original))
    assert isinstance(error, EnvRaisedError)
    assert str(original) in str(error)
    assert type(original).__name__ in str(error)
    assert error.args == (str(error),)
    assert (error.worker, error.env_indices, error.method) == (worker, (1,), "call")
    assert "the reason behind it" in error.traceback_text
    assert "in fail" in error.traceback_text


@pytest.mark.parametrize("name", ALL)
def test_an_exception_is_caught_by_its_own_type(fleet: Any, name: str) -> None:
    original = EXCEPTIONS[name]()
    error = caught_from(fleet, "fail", name)
    check_is_what_it_was(error, original, 1 if isinstance(fleet, AsyncVectorEnv) else None)
    assert "Environment 1" in str(error)
    assert "fail" in str(error)


@pytest.mark.parametrize("name", list(EXCEPTIONS)[:-1])
def test_the_original_is_the_cause(fleet: Any, name: str) -> None:
    original, cause = EXCEPTIONS[name](), caught_from(fleet, "fail", name).__cause__
    assert type(cause) is type(original)
    assert str(cause) == str(original)
    assert cause.args == original.args
    for attribute in "errno", "filename", "name", "start", "where":
        assert getattr(cause, attribute, None) == getattr(original, attribute, None)


@pytest.mark.parametrize("name", PICKLABLE)
def test_an_error_survives_pickling_and_copying(fleet: Any, name: str) -> None:
    error = caught_from(fleet, "fail", name)
    for again in pickle.loads(pickle.dumps(error)), copy.copy(error):
        check_is_what_it_was(again, EXCEPTIONS[name](), error.worker)
        assert str(again) == str(error)
        assert type(again.__cause__) is type(error.__cause__)


def test_an_exception_that_cannot_be_sent_keeps_its_type_and_text(fleet: Any) -> None:
    error = caught_from(fleet, "fail_locked")
    assert isinstance(error, RuntimeError)
    assert "holds a lock" in str(error)


def test_an_exception_that_cannot_be_printed_is_raised_all_the_same(fleet: Any) -> None:
    assert isinstance(caught_from(fleet, "fail_speechless"), SpeechlessError)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are new in Python 3.11")
def test_a_group_of_exceptions_arrives_whole(fleet: Any) -> None:
    error = caught_from(fleet, "fail_in_a_group")
    assert "several (2 sub-exceptions)" in str(error)
    cause: Any = error.__cause__
    assert [str(part) for part in cause.exceptions] == ["one", "two"]


def test_the_tree() -> None:
    assert issubclass(InvalidActionError, FleetError)
    assert issubclass(InvalidActionError, ValueError)
    assert issubclass(InvalidOutputError, ValueError)
    for kind in EnvRaisedError, InvalidOutputError, WorkerDiedError:
        assert issubclass(kind, WorkerError)
        assert kind.__name__ in str(errors.__doc__)
    assert not issubclass(WorkerError, ValueError)


@pytest.mark.parametrize("kind", [WorkerError, InvalidOutputError, WorkerDiedError])
def test_other_worker_errors_survive_pickling(kind: Any) -> None:
    error = kind("what happened", worker=2, env_indices=range(4, 6))
    for again in pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error):
        assert type(again) is kind
        assert (str(again), again.worker, again.env_indices) == ("what happened", 2, (4, 5))


SCRIPT = """
import concurrent.futures, sys
import envfleet
from envfleet.testing.envs import Command, trouble_fns

def work(_):
    with envfleet.SyncVectorEnv(trouble_fns(2)) as envs:
        envs.reset()
        envs.step([0, int(Command.RAISE)])

with concurrent.futures.ProcessPoolExecutor(1) as pool:
    try:
        pool.submit(work, 0).result(timeout=60)
    except ZeroDivisionError as error:
        print(isinstance(error, envfleet.EnvRaisedError), error.env_indices)
"""


def test_an_error_crosses_a_users_own_process_pool() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=90)
    assert (done.stdout, done.returncode) == ("True (1,)\n", 0), done.stderr


class QuittingEnv(gym.Env[Any, Any]):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> Any:
        raise SystemExit(3)


@pytest.mark.parametrize("backend", [SyncVectorEnv, AsyncVectorEnv])
def test_an_environment_that_exits_is_an_error_and_ends_nothing(backend: Any) -> None:
    with backend([QuittingEnv] * 2) as envs:
        envs.reset()
        with pytest.raises(EnvRaisedError, match="SystemExit") as caught:
            envs.step([0, 0])
        assert not isinstance(caught.value, SystemExit)
        envs.reset()


@pytest.mark.parametrize("timeout", [float("nan"), -1, "soon", True])
@pytest.mark.parametrize("backend", [SyncVectorEnv, AsyncVectorEnv])
def test_timeouts_that_are_no_time_are_refused(backend: Any, timeout: Any) -> None:
    with backend([QuittingEnv] * 2) as envs:
        envs.reset_async()
        with pytest.raises(ValueError, match="timeout must be a number of seconds"):
            envs.reset_wait(timeout)
        envs.reset_wait()
        with pytest.raises(ValueError, match="timeout must be a number of seconds"):
            envs.close(timeout=timeout)
