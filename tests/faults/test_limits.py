"""Restarts have limits, and what cannot be made again says so."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import fleet, soon, zeros
from soaking.faulty import Fault, FaultyEnv, Habits, faulty_fns

from envfleet.errors import EnvRaisedError, WorkerDiedError, WorkerError, WorkerStuckError
from envfleet.vector import AsyncVectorEnv, SyncVectorEnv, failures

# Short, but longer than a loaded machine takes to fork and to make an environment.
START_TIMEOUT = 1.0
MADE_IN_VAIN: dict[str, Callable[[], Any]] = {
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: threading.Event().wait(),
}


class FragileEnv(FaultyEnv):
    """Cannot be made at some times: each time leaves a mark."""

    def __init__(self, habits: Habits, marks: str, bad_times: range, how: str) -> None:
        super().__init__(habits)
        path = Path(marks, str(habits.index))
        with path.open("a") as file:
            file.write("|")
        if habits.index == 3 and path.stat().st_size in bad_times:
            if how == "raise":
                raise LookupError(f"environment {habits.index} cannot be made again")
            MADE_IN_VAIN[how]()


def fragile_fns(marks: Path, bad_times: range, how: str = "raise") -> list[Any]:
    return [partial(FragileEnv, Habits(i, 100), str(marks), bad_times, how) for i in range(4)]


FIRST, SECOND, SECOND_AND_LATER = range(1, 2), range(2, 3), range(2, 99)


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.RAISE], ids=["worker", "environment"])
def test_a_broken_environment_is_not_restarted_for_ever(fault: Fault) -> None:
    with fleet(2, on_failure="restart", max_restarts=2) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            assert envs.step(zeros(envs, {3: fault}))[3][3]
            envs.step(zeros(envs))
        kind = WorkerDiedError if fault is Fault.KILL else EnvRaisedError
        with soon(), pytest.raises(kind, match=r"restarted 2 times within 60 s.*max_restarts") as caught:
            envs.step(zeros(envs, {3: fault}))
        assert 3 in caught.value.env_indices
        assert ("SIGKILL" if fault is Fault.KILL else "told to raise") in str(caught.value)
        if fault is Fault.KILL:
            with pytest.raises(WorkerDiedError, match="max_restarts"):
                envs.step(zeros(envs))
        envs.reset(seed=0)  # the user has seen it and wants to go on
        assert envs.step(zeros(envs))[0]["count"][:, 2].tolist() == [1] * 4


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.RAISE], ids=["worker", "environment"])
def test_what_lies_outside_the_window_does_not_count(fault: Fault) -> None:
    window = 0.05
    with fleet(2, on_failure="restart", max_restarts=1, restart_window=window) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            assert envs.step(zeros(envs, {3: fault}))[3][3]
            envs.step(zeros(envs))
            deadline = time.monotonic() + window
            while time.monotonic() <= deadline:
                envs.reset()


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.RAISE], ids=["worker", "environment"])
def test_no_restarts_allowed_is_as_good_as_raise(fault: Fault) -> None:
    with fleet(2, on_failure="restart", max_restarts=0) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerError, match="restarted 0 times"):
            envs.step(zeros(envs, {3: fault}))


@pytest.mark.parametrize("how", ["step", "send"])
def test_a_constructor_that_raises_the_second_time_is_told(tmp_path: Path, how: str) -> None:
    with fleet(env_fns=fragile_fns(tmp_path, SECOND_AND_LATER), on_failure="restart") as envs:
        envs.reset(seed=0)
        with soon(), pytest.raises(EnvRaisedError, match="environment 3 cannot be made again") as caught:
            act(envs, how, Fault.KILL)
        assert isinstance(caught.value, LookupError)
        assert caught.value.env_indices == (3,)
        with pytest.raises(EnvRaisedError, match="cannot be made again"):
            envs.reset()
        (tmp_path / "3").unlink()  # mended
        envs.reset()
        assert envs.step(zeros(envs))[0]["count"][:, 2].tolist() == [1] * 4


def act(envs: AsyncVectorEnv, how: str, fault: Fault) -> Any:
    if how == "step":
        return envs.step(zeros(envs, {3: fault}))
    envs.send(zeros(envs, {3: fault}))
    return envs.recv()


def test_a_constructor_that_raises_again_in_place_is_tried_until_the_limit(tmp_path: Path) -> None:
    with fleet(env_fns=fragile_fns(tmp_path, SECOND_AND_LATER), on_failure="restart", max_restarts=4) as envs:
        envs.reset(seed=0)
        with pytest.raises(EnvRaisedError, match=r"restart\(\): environment 3 cannot(.|\n)*restarted 4 times"):
            envs.step(zeros(envs, {3: Fault.RAISE}))
        assert (tmp_path / "3").read_text() == "|" * 5


@pytest.mark.parametrize(("how", "vain"), [("step", "die"), ("send", "die"), ("step", "hang")])
def test_a_worker_that_is_lost_while_it_restarts_is_restarted(tmp_path: Path, how: str, vain: str) -> None:
    care: dict[str, Any] = {"max_restarts": 1, "restart_window": 0.5, "start_timeout": START_TIMEOUT}
    with fleet(env_fns=fragile_fns(tmp_path, SECOND_AND_LATER, vain), on_failure="restart", **care) as envs:
        envs.reset(seed=0)
        kind = WorkerDiedError if vain == "die" else WorkerStuckError
        with soon(), pytest.raises(kind, match="restarted 1 time within") as caught:
            act(envs, how, Fault.KILL)
        wanted = "SIGKILL" if vain == "die" else r"environment 3 was still being made after 1 s (start_timeout)"
        assert wanted in str(caught.value)
        (tmp_path / "3").unlink()
        envs.reset(seed=0)
        envs.step(zeros(envs))


@pytest.mark.parametrize(("how", "vain"), [("step", "die"), ("send", "die"), ("step", "hang")])
def test_a_worker_that_is_lost_while_it_restarts_may_recover(tmp_path: Path, how: str, vain: str) -> None:
    fns = fragile_fns(tmp_path, SECOND, vain)
    with fleet(env_fns=fns, on_failure="restart", start_timeout=START_TIMEOUT) as envs:
        envs.reset(seed=0)
        with soon():
            truncated = act(envs, how, Fault.KILL)
        assert truncated[3][3]
        assert (tmp_path / "3").read_text() == "|||"


def test_an_environment_that_hangs_while_it_is_made_again_in_place_is_ended(tmp_path: Path) -> None:
    fns = fragile_fns(tmp_path, SECOND, "hang")
    with fleet(env_fns=fns, on_failure="restart", step_timeout=60, start_timeout=START_TIMEOUT) as envs:
        envs.reset(seed=0)
        with soon():
            *_, truncated, infos = envs.step(zeros(envs, {3: Fault.RAISE}))
        assert truncated[3]
        assert "environment 3 had not finished after 1 s (start_timeout)" in infos["restart_cause"][3]


def test_a_constructor_that_hangs_is_told_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "STUCK_WARNING_AFTER", START_TIMEOUT / 4)
    told = r"environment 3 was still being made after .* s\. It is waited for up to 1 s \(start_timeout\)"
    with (
        soon(),
        pytest.warns(RuntimeWarning, match=told),
        pytest.raises(WorkerStuckError, match="environment 3 was still being made after 1 s") as caught,
    ):
        AsyncVectorEnv(fragile_fns(tmp_path, FIRST, "hang"), context="fork", num_workers=2, start_timeout=START_TIMEOUT)
    assert caught.value.env_indices == (2, 3)
    assert "SyncVectorEnv" in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_failure": "ignore"},
        {"max_restarts": -1},
        {"max_restarts": True},
        {"max_restarts": 1.5},
        {"restart_window": 0},
        {"restart_window": None},
        {"restart_window": -1.0},
        {"step_timeout": 0},
        {"step_timeout": "1"},
        {"start_timeout": 0},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        AsyncVectorEnv(faulty_fns(2), context="fork", **wrong)
    if not name.endswith("timeout"):
        with pytest.raises(ValueError, match=name):
            SyncVectorEnv(faulty_fns(2), **wrong)


def test_a_sync_fleet_restarts_what_raises() -> None:
    envs = SyncVectorEnv(faulty_fns(3), on_failure="restart", max_restarts=1)
    envs.reset(seed=0)
    before = envs.step([0, 0, 0])[0]
    observations, rewards, _, truncated, infos = envs.step([0, Fault.RAISE, 0])
    assert truncated.tolist() == [False, True, False]
    assert rewards[1] == 0
    np.testing.assert_array_equal(observations["count"][1], before["count"][1])
    assert infos["restarted"].tolist() == [False, True, False]
    envs.step([0, 0, 0])
    with pytest.raises(EnvRaisedError, match="max_restarts"):
        envs.step([0, Fault.RAISE, 0])
    envs.close()
