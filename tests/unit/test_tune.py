"""`tune`: what is compared, how it is measured, and what becomes of slow, broken and interrupted environments."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import psutil
import pytest

import envfleet
from envfleet import tune
from envfleet.errors import EnvRaisedError, InvalidOutputError, WorkerDiedError
from envfleet.plan import StepCost
from envfleet.testing.envs import BrokenConstructorEnv, Command, CounterConfig, CounterEnv
from envfleet.tuning import Candidate, Setup, TuningResult, laboratory, race
from envfleet.tuning.laboratory import Bench, TooSlow, Turn
from envfleet.tuning.setups import EnvCost, expect, setups

SLACK = 4.0
"""For a loaded machine."""


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    _, alive = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=10)
    assert not alive


@pytest.fixture
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "usable_cores", lambda: 2)


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn each, whatever the seconds: those are for loaded machines."""
    monkeypatch.setattr(race, "_MOST_ROUNDS", 1)
    monkeypatch.setattr(race, "_GOOD_SLICE", 0.05)


# --- what is compared ------------------------------------------------------------------------------------


def busy(seconds: float) -> EnvCost:
    return EnvCost(0.01, 0.001, StepCost(seconds, seconds))


def waiting(seconds: float) -> EnvCost:
    return EnvCost(0.01, 0.001, StepCost(seconds, seconds / 100))


def names(num_envs: int, cores: int, cost: EnvCost, *, first_ready: bool = True) -> list[str]:
    found = setups(num_envs, cores, cost, first_ready=first_ready)
    return [setup.name for setup in found if setup.backend != "native"]


def test_computing_environments_are_tried_with_workers_up_to_twice_the_cores() -> None:
    assert names(64, 2, busy(1e-4)) == [
        "sync",
        "process, 1 worker and the caller",
        "process, 1 worker",
        "process, 2 workers",
        "process, 4 workers",
        "process, 2 workers, first 32 ready",
        "process, 2 workers, first 16 ready",
    ]


def test_waiting_environments_are_also_tried_with_a_worker_each() -> None:
    assert names(16, 2, waiting(0.01))[2:] == [
        "process, 1 worker",
        "process, 2 workers",
        "process, 4 workers",
        "process, 16 workers",
        "process, 16 workers, first 8 ready",
        "process, 16 workers, first 4 ready",
    ]
    assert "process, 64 workers" in names(200, 2, waiting(0.01))


@pytest.mark.parametrize(
    ("num_envs", "cores", "expected"),
    [
        (1, 2, ["sync", "process, 1 worker"]),
        (
            2,
            8,
            [
                "sync",
                "process, 1 worker and the caller",
                "process, 1 worker",
                "process, 2 workers",
                "process, 2 workers, first 1 ready",
            ],
        ),
        (
            3,
            1,
            [
                "sync",
                "process, 1 worker",
                "process, 2 workers",
                "process, 1 worker, first 1 ready",
            ],
        ),
    ],
)
def test_nothing_is_tried_twice_and_nothing_impossible(num_envs: int, cores: int, expected: list[str]) -> None:
    assert names(num_envs, cores, busy(1e-3)) == expected


def test_first_ready_can_be_left_out() -> None:
    assert not any("ready" in name for name in names(64, 2, busy(1e-4), first_ready=False))


@pytest.mark.parametrize("native", [False, True])
def test_the_native_backend_is_tried_where_there_is_one(native: bool) -> None:
    assert (Setup(8, "native") in setups(8, 2, busy(1e-4), first_ready=False, suitable=["native"] * native)) is native


@pytest.mark.parametrize(
    ("setup", "cost", "step"),
    [
        (Setup(8, "sync"), busy(1.0), 8.0),
        (Setup(8, "process", {"num_workers": 2}), busy(1.0), 4.0),
        (Setup(8, "process", {"num_workers": 4}), busy(1.0), 4.0),
        (Setup(8, "process", {"num_workers": 4}), waiting(1.0), 2.0),
        (Setup(8, "process", {"num_workers": 8, "first_ready": 4}), waiting(1.0), 1.0),
    ],
)
def test_how_long_a_step_should_take(setup: Setup, cost: EnvCost, step: float) -> None:
    assert expect(setup, 2, cost).step == pytest.approx(step)


# --- what follows from the figures -----------------------------------------------------------------------


def result(speeds: dict[str, tuple[float, ...]], **changes: Any) -> TuningResult:
    kinds = {
        "sync": Setup(8, "sync"),
        "caller": Setup(8, "process", {"num_workers": 2, "caller_works": True}),
        "ready": Setup(8, "process", {"num_workers": 2, "first_ready": 4}),
    }
    candidates = tuple(Candidate(kinds[kind], figures, (0.1,) * len(figures)) for kind, figures in speeds.items())
    values: dict[str, Any] = {
        "env": '"X-v0"',
        "env_kwargs": {},
        "cores": 2,
        "waits": False,
        "bare_speeds": (90.0, 100.0, 300.0),
        "candidates": candidates,
        "seconds": 9.0,
    }
    return TuningResult(**{**values, **changes})


def test_the_median_decides() -> None:
    found = result({"sync": (100, 101, 102), "caller": (90, 150, 151), "ready": (10, 20, 1000)})
    assert found.best.setup.name == "process, 1 worker and the caller"
    assert (found.times_sync(found.best), found.of_ideal(found.best)) == (150 / 101, 150 / 200)


def test_the_simplest_of_those_that_are_as_good_wins() -> None:
    assert result({"sync": (97.1,), "caller": (100,), "ready": (99,)}).best.setup.backend == "sync"
    assert result({"sync": (96.9,), "caller": (98,), "ready": (100,)}).best.setup.vector_kwargs["caller_works"]


def test_what_was_not_measured_cannot_win() -> None:
    found = result({"sync": (), "ready": (10,)})
    assert found.best is found.best_to_step is found.candidates[1]
    assert found.times_sync(found.best) is None
    assert found.of_ideal(found.candidates[0]) is None


def test_if_first_ready_wins_the_best_for_a_step_loop_is_told_too() -> None:
    found = result({"sync": (100, 100, 100), "caller": (150, 150, 150), "ready": (200, 200, 200)})
    text = str(found)
    assert found.best.setup.first_ready == 4
    assert "75% of that speed" in text
    assert found.code_of(found.candidates[1]) in text
    assert "envs.recv()" in text


def test_environments_that_wait_could_all_wait_at_the_same_time() -> None:
    found = result({"sync": (100, 100, 100)}, waits=True)
    assert found.ideal(8) == 800
    assert "every environment waits for itself" in str(found)


def test_restless_figures_and_few_turns_are_owned_up_to() -> None:
    assert "differ by 40%" in result({"sync": (80, 100, 120)}).notes[0]
    assert "single turn" in result({"sync": (80,)}).notes[0]
    assert not result({"sync": (95, 100, 105)}).notes


def test_json_holds_everything() -> None:
    found = result({"sync": (100, 100, 100), "caller": (150, 160, 170)}, env_kwargs={"a": 1, "b": [2]})
    values = json.loads(json.dumps(found.to_json_dict()))
    assert values["best"] == 1
    assert values["candidates"][1]["steps_per_second"] == 160
    assert values["candidates"][1]["speeds"] == [150, 160, 170]
    assert values["candidates"][1]["vector_kwargs"] == {"num_workers": 2, "caller_works": True}
    assert values["code"] == found.code
    assert values["env_kwargs"] == {"a": 1, "b": "[2]"}


def test_the_line_to_paste() -> None:
    found = result({"sync": (10,), "caller": (20,)}, env='"LunarLander-v3"', env_kwargs={"gravity": -5, "name": "it's"})
    assert found.code == (
        'envs = envfleet.make_vec("LunarLander-v3", 8, backend="process", '
        'vector_kwargs={"num_workers": 2, "caller_works": True}, gravity=-5, name="it\'s")'
    )


# --- measuring -------------------------------------------------------------------------------------------


class LoggingEnv(CounterEnv):
    """Leaves the number of steps it took in a folder."""

    def __init__(self, folder: Path, length: int = 3) -> None:
        super().__init__(CounterConfig(length=length))
        self.folder = folder

    def close(self) -> None:
        (self.folder / f"{os.getpid()}-{id(self)}").write_text(str(len(self.actions)))


@pytest.mark.parametrize("length", [1, 3, 10**9])
@pytest.mark.parametrize(
    "setup",
    [
        Setup(4, "sync"),
        Setup(4, "process", {"num_workers": 2}),
        Setup(4, "process", {"num_workers": 2, "first_ready": 2}),
    ],
    ids=lambda setup: setup.name,
)
def test_steps_are_counted_and_resets_are_not(setup: Setup, length: int, tmp_path: Path) -> None:
    turn = Bench(LoggingEnv, {"folder": tmp_path, "length": length}).fleet(setup, 0.0, 0.1)
    taken = sum(int(path.read_text()) for path in tmp_path.iterdir())
    under_way = 0 if setup.first_ready is None else setup.num_envs
    assert taken - under_way <= turn.steps <= taken
    assert turn.steps > 0
    assert turn.seconds >= 0.1


def test_one_environment_alone_is_counted_the_same_way(tmp_path: Path) -> None:
    turn = Bench(LoggingEnv, {"folder": tmp_path}).bare(0.0, 0.05)
    assert [path.read_text() for path in tmp_path.iterdir()] == [str(turn.steps)]


@pytest.mark.usefixtures("_two_cores")
def test_an_environment_is_tuned_in_the_time_given() -> None:
    told: list[str] = []
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    start = time.monotonic()
    found = tune("CartPole-v1", 4, seconds=3.0, progress=told.append, max_episode_steps=7)
    assert np.random.random() == expected
    assert time.monotonic() - start < 3.0 + SLACK
    assert found.seconds <= time.monotonic() - start
    assert told[0] == "one environment alone"
    assert "round 1 of" in told[1]
    assert found.best.speeds
    assert found.best_to_step.setup.first_ready is None
    assert found.bare_speeds[0] > 0
    assert "max_episode_steps=7" in found.code
    for candidate in found.candidates:
        assert bool(candidate.speeds) != bool(candidate.skipped) or len(candidate.speeds) > 1
        assert len(candidate.speeds) == len(candidate.ready_seconds)
        assert all(speed > 0 for speed in candidate.speeds)


@pytest.mark.usefixtures("_two_cores", "_short")
def test_every_line_to_paste_runs() -> None:
    found = tune("CartPole-v1", [2], seconds=30.0, max_episode_steps=7)
    for candidate in found.candidates:
        names: dict[str, Any] = {"envfleet": envfleet, "policy": lambda observations: np.zeros(len(observations), int)}
        exec(found.code_of(candidate), names)
        with names["envs"] as envs:
            assert envs.num_envs == 2
            assert candidate.setup.first_ready in (None, envs.batch_size)
            assert envs.spec.kwargs["max_episode_steps"] == 7


@pytest.mark.usefixtures("_short")
def test_several_numbers_of_environments_are_compared() -> None:
    found = tune(CounterEnv, [3, 2], seconds=30.0, first_ready=False)
    assert {candidate.setup.num_envs for candidate in found.candidates} == {2, 3}
    assert found.env == "CounterEnv"
    assert "2 or 3 x CounterEnv" in str(found)


@pytest.mark.usefixtures("_short")
def test_functions_without_a_name_get_one() -> None:
    found = tune(lambda: CounterEnv(), 2, seconds=30.0, first_ready=False)
    assert found.code.startswith("envs = envfleet.make_vec(make_env, 2, ")


# --- under a minute --------------------------------------------------------------------------------------


class Clock:
    """Stands for the module `time`: it is as late as whoever works says it is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class SlowLaboratory:
    """Takes a share of the time it is allowed for every answer, and as long as a real one to begin and to end.

    With a share of 1 nothing is ever ready in time.
    """

    clock: ClassVar[Clock]
    cost: ClassVar[EnvCost]
    share: ClassVar[float]
    timeouts: ClassVar[list[float]]

    def __init__(self, env: Any, env_kwargs: Any, longest: float) -> None:
        self.running = False
        self.deadline = self.clock.now + longest

    def ask(self, measurement: str, *args: Any, timeout: float) -> Any:
        assert self.clock.now + timeout <= self.deadline
        self.clock.now += 0.0 if self.running else STARTING
        self.running = True
        if measurement == "cost":
            self.clock.now += 5 * (self.cost.make + self.cost.reset + self.cost.step.wall)
            return self.cost
        self.timeouts.append(timeout)
        *_, lead_in, seconds = args
        taken = max(self.share * timeout, min(lead_in + seconds + 0.1, timeout))
        self.clock.now += taken
        if taken == timeout:
            self.close(at_once=True)
            raise TooSlow
        return Turn(100, seconds, taken - seconds)

    def close(self, *, at_once: bool = False) -> None:
        self.clock.now += STARTING if at_once else laboratory._CLOSE_SECONDS
        self.running = False


STARTING = 2.0
"""Seconds to start or to kill a process, on a busy machine."""


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("cores", [1, 2, 64])
@pytest.mark.parametrize("cost", [busy(1e-6), busy(0.01), waiting(0.1), waiting(4.0)], ids=str)
def test_by_default_it_takes_less_than_a_minute(
    cost: EnvCost, cores: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    for name, value in {"clock": clock, "cost": cost, "share": share, "timeouts": []}.items():
        monkeypatch.setattr(SlowLaboratory, name, value, raising=False)
    for name, stand_in in {"time": clock, "Laboratory": SlowLaboratory, "usable_cores": lambda: cores}.items():
        monkeypatch.setattr(race, name, stand_in)
    start = clock.now
    try:
        assert tune("CartPole-v1").seconds == clock.now - start
    except TimeoutError:
        assert share == 1.0
    assert clock.now - start < 60
    assert SlowLaboratory.timeouts


# --- slow and stuck --------------------------------------------------------------------------------------


class SleepyEnv(CounterEnv):
    def __init__(self, nap: float) -> None:
        super().__init__()
        self.nap = nap

    def step(self, action: Any) -> Any:
        time.sleep(self.nap)
        return super().step(action)


@pytest.mark.usefixtures("_two_cores", "_short")
def test_a_slow_environment_stays_within_its_time() -> None:
    start = time.monotonic()
    found = tune(SleepyEnv, 12, seconds=12.0, first_ready=False, nap=1.0)
    assert time.monotonic() - start < 12.0 + SLACK
    assert found.waits
    assert found.best.setup.workers == 12
    assert found.candidates[0].setup.name == "sync"  # takes 12 s a step
    assert not found.candidates[0].speeds
    assert re.match(r"12 x sync: not measured: a turn would take about 1\d s", found.notes[0])


def test_if_nothing_fits_the_error_says_so() -> None:
    with pytest.raises(TimeoutError, match=r"Nothing could be measured within 2 s.*Give more seconds"):
        tune(SleepyEnv, 100, seconds=2.0, first_ready=False, nap=0.5)


class StuckEnv(CounterEnv):
    def step(self, action: Any) -> Any:
        threading.Event().wait()
        return super().step(action)


def test_an_environment_that_hangs_is_given_up() -> None:
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"stepped twice.*give more seconds"):
        tune(StuckEnv, 2, seconds=1.0)
    assert time.monotonic() - start < 1.0 + SLACK


class LonelyEnv(CounterEnv):
    """Hangs where another one lives in the same process."""

    alive: ClassVar[Counter[int]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.alive[os.getpid()] += 1

    def step(self, action: Any) -> Any:
        if self.alive[os.getpid()] > 1:
            threading.Event().wait()
        return super().step(action)

    def close(self) -> None:
        self.alive[os.getpid()] -= 1


@pytest.mark.usefixtures("_two_cores", "_short")
def test_a_candidate_that_hangs_is_stopped_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "_LEAST_PATIENCE", 0.5)
    found = tune(LonelyEnv, 2, seconds=30.0, first_ready=False)
    assert found.best.setup.workers == 2
    assert "2 x sync: not measured: its turn was stopped after" in found.notes[0]


# --- broken ----------------------------------------------------------------------------------------------


class BrokenStepEnv(CounterEnv):
    def step(self, action: Any) -> Any:
        raise KeyError("no step today")


class BrokenLaterEnv(CounterEnv):
    def step(self, action: Any) -> Any:
        if len(self.actions) == 50:
            raise KeyError("no more steps today")
        return super().step(action)


class WrongShapeEnv(CounterEnv):
    def step(self, action: Any) -> Any:
        return (np.zeros(3, np.int64), *super().step(action)[1:])


@pytest.mark.parametrize(
    ("env", "error", "method", "match"),
    [
        (BrokenConstructorEnv, ZeroDivisionError, "make", "was told to raise"),
        (BrokenStepEnv, KeyError, "step", "no step today"),
    ],
)
def test_a_broken_environment_raises_its_own_error(env: Any, error: Any, method: str, match: str) -> None:
    with pytest.raises(EnvRaisedError, match=match) as caught:
        tune(env, 2, seconds=30.0)
    assert isinstance(caught.value, error)
    assert caught.value.method == method


def test_an_environment_that_breaks_while_it_is_measured_raises_too() -> None:
    with pytest.raises(EnvRaisedError, match=r"raised KeyError in step.*no more steps today"):
        tune(BrokenLaterEnv, 2, seconds=30.0)


def test_wrong_outputs_are_refused() -> None:
    with pytest.raises(InvalidOutputError, match="shape"):
        tune(WrongShapeEnv, 2, seconds=30.0)


def test_an_environment_that_crashes_does_not_crash_the_caller() -> None:
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        tune(BrokenConstructorEnv, 2, seconds=30.0, command=Command.KILL)


class OnlyHereEnv(CounterEnv):
    """Dies in a worker."""

    def step(self, action: Any) -> Any:
        if multiprocessing.current_process().daemon:
            os._exit(3)
        return super().step(action)


@pytest.mark.usefixtures("_two_cores", "_short")
def test_a_candidate_that_fails_is_left_out_and_named() -> None:
    found = tune(OnlyHereEnv, 2, seconds=30.0)
    assert found.best.setup == Setup(2, "sync")
    failed = [candidate for candidate in found.candidates if candidate.setup.backend == "process"]
    assert not any(candidate.speeds for candidate in failed)
    assert any("2 x process, 2 workers: not measured: WorkerDiedError" in note for note in found.notes)


# --- misuse and interruption -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"num_envs": 0}, ValueError, "num_envs must be a positive integer, got 0"),
        ({"num_envs": []}, ValueError, "got none"),
        ({"seconds": 0}, ValueError, "seconds must be a positive number, got 0"),
        ({"seconds": float("nan")}, ValueError, "seconds must be a positive number"),
        ({"env": "CartPol-v1"}, gym.error.NameNotFound, "CartPole"),
        ({"env": 3}, TypeError, "3 is no environment"),
    ],
)
def test_misuse_is_refused_before_anything_is_started(arguments: dict[str, Any], error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        tune(**{"env": "CartPole-v1", "num_envs": 2, **arguments})


INTERRUPTED = """
import envfleet
envfleet.tune("CartPole-v1", 4, seconds=50, progress=lambda text: print(text, flush=True))
"""


@pytest.mark.parametrize("moment", ["one environment alone", "first 2 ready"])
def test_ctrl_c_leaves_nothing_behind(moment: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if moment in line)
        started = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=20)
        assert errors.count("Traceback") == 1
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert not psutil.wait_procs(started, timeout=10)[1]
