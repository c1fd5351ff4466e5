"""An environment that cannot be built ends the constructor with its own error and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from process_fleets import NUM_ENVS, SOON, within

from envfleet.errors import EnvRaisedError, WorkerDiedError
from envfleet.testing.envs import (
    EXIT_CODE,
    BrokenConstructorEnv,
    Command,
    CounterConfig,
    EnvFn,
    OddError,
    counter_fns,
    endless_fns,
)
from envfleet.vector import AsyncVectorEnv

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


def with_a_broken_one(index: int, command: Command) -> Sequence[EnvFn]:
    fns = endless_fns(NUM_ENVS)
    fns[index] = partial(BrokenConstructorEnv, CounterConfig(index=index), command)
    return fns


@pytest.mark.parametrize("index", [0, NUM_ENVS - 1])
def test_a_constructor_that_raises_is_named(index: int, start_method: str) -> None:
    with within(SOON), pytest.raises(EnvRaisedError, match=f"environment {index} was told to raise") as caught:
        AsyncVectorEnv(with_a_broken_one(index, Command.RAISE), context=start_method, num_workers=2)
    assert isinstance(caught.value, ZeroDivisionError)
    assert caught.value.env_indices == (index,)
    assert "in obey" in caught.value.traceback_text


@pytest.mark.parametrize(
    ("command", "cause"), [(Command.KILL, "SIGKILL"), (Command.EXIT, str(EXIT_CODE))], ids=["killed", "exited"]
)
def test_a_constructor_that_ends_its_worker_is_named(command: Command, cause: str, start_method: str) -> None:
    with within(SOON), pytest.raises(WorkerDiedError, match=cause) as caught:
        AsyncVectorEnv(with_a_broken_one(NUM_ENVS - 1, command), context=start_method, num_workers=2)
    assert NUM_ENVS - 1 in caught.value.env_indices


@pytest.mark.parametrize("command", [Command.RAISE_ODD, Command.RAISE_UNPICKLABLE])
def test_odd_exceptions_in_a_constructor_arrive(command: Command) -> None:
    with pytest.raises(EnvRaisedError) as caught:
        AsyncVectorEnv(with_a_broken_one(NUM_ENVS - 1, command), context="fork", num_workers=2)
    wanted = OddError if command == Command.RAISE_ODD else RuntimeError
    assert isinstance(caught.value, wanted)


def test_a_constructor_that_raises_in_the_callers_share_is_named() -> None:
    with pytest.raises(EnvRaisedError, match="environment 0 was told to raise") as caught:
        AsyncVectorEnv(with_a_broken_one(0, Command.RAISE), context="fork", num_workers=2, caller_works=True)
    assert caught.value.worker is None


def test_environments_that_were_built_are_closed_again(tmp_path: Path) -> None:
    fns: list[EnvFn] = [*counter_fns(4, close_log=str(tmp_path)), partial(BrokenConstructorEnv, CounterConfig(index=4))]
    with pytest.raises(EnvRaisedError):
        AsyncVectorEnv(fns, context="fork", num_workers=2)
    assert {log.name for log in tmp_path.iterdir()} == {"0", "1", "2", "3"}


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_function_that_cannot_be_sent_is_refused(context: str) -> None:
    lock = threading.Lock()

    def locked() -> gym.Env[Any, Any]:
        with lock:
            return endless_fns(1)[0]()

    with within(SOON), pytest.raises(TypeError, match="lock"):
        AsyncVectorEnv([*endless_fns(2), locked], context=context, num_workers=3)


def test_spaces_that_do_not_agree_leave_nothing_behind(start_method: str) -> None:
    fns: list[EnvFn] = [*endless_fns(2), partial(gym.make, "CartPole-v1")]
    with pytest.raises(RuntimeError):
        AsyncVectorEnv(fns, context=start_method, num_workers=3)


def test_something_that_is_no_environment_is_refused() -> None:
    fns: list[Any] = [*endless_fns(2), lambda: "no environment"]
    with within(SOON), pytest.raises(Exception, match="2"):
        AsyncVectorEnv(fns, context="fork", num_workers=2)
