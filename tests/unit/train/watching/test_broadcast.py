"""The training's side of the live page: it writes while somebody watches, obeys, and learns the same as ever."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import CONFIGS, changed, outcome
from tiny_envs import AnySpaceEnv

from envfleet import uniform
from envfleet.rendering import Frame
from envfleet.train import PPOConfig, Progress, train
from envfleet.train.folders.folder import RunFolder
from envfleet.train.running.run import RunContext, begin_run
from envfleet.train.watching.broadcast import Broadcast
from envfleet.train.watching.signals import LiveFolder


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Fleet:
    """A training to watch, whose pictures take half a second each."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.drawn, self.told, self.measured = clock, 0, 0, False

    def live(self) -> dict[str, Any]:
        self.told += 1
        return {"step": self.told, "envs": [{"return": 1.5, "length": 3}] * 2}

    def picture_of(self, env: int) -> Frame:
        self.drawn += 1
        self.clock.now += 0.5
        return np.full((100, 300, 3), env, np.uint8)

    def measure_policy(self, wanted: bool) -> None:
        self.measured = wanted


def broadcast(path: Path) -> tuple[Broadcast, Fleet, LiveFolder, Clock]:
    clock = Clock()
    fleet = Fleet(clock)
    return Broadcast(RunFolder(path), fleet, pictures=True, clock=clock), fleet, LiveFolder(path), clock


def test_nothing_is_written_or_measured_while_nobody_watches(tmp_path: Path) -> None:
    found, fleet, live, clock = broadcast(tmp_path)
    for _ in range(100):
        clock.now += 1
        assert found.look() == set()
    assert (fleet.told, fleet.drawn, fleet.measured) == (0, 0, False)
    assert not live.path.exists()


def test_what_is_written_takes_less_than_a_hundredth_of_the_time(tmp_path: Path) -> None:
    found, fleet, live, clock = broadcast(tmp_path)
    spent = 0.0
    live.ask()
    while clock.now < 2000:
        clock.now += 0.1
        before = clock.now
        found.look()
        spent += clock.now - before
    assert 2 <= fleet.drawn < 20
    assert spent < 0.01 * clock.now
    assert fleet.measured
    state = json.loads(live.state_file.read_text())
    assert [(env["return"], env["length"]) for env in state["envs"]] == [(1.5, 3)] * 2
    assert sum(env["picture"] for env in state["envs"]) in (fleet.drawn - 1, fleet.drawn)
    assert state["pictures"] == "live"
    assert {path.name for path in live.path.glob("*.jpg")} == {"frame-0.jpg", "frame-1.jpg"}


def test_orders_are_given_once_and_those_of_an_earlier_training_never(tmp_path: Path) -> None:
    LiveFolder(tmp_path).order("stop")
    found, _, live, clock = broadcast(tmp_path)
    assert found.look() == set()
    live.order("save")
    clock.now += 1
    assert found.look() == {"save"}
    clock.now += 1
    assert found.look() == set()


def test_environments_that_cannot_be_drawn_end_nothing(tmp_path: Path) -> None:
    found, fleet, live, clock = broadcast(tmp_path)
    fleet.picture_of = lambda env: 1 / 0 if env < 0 else None  # type: ignore[method-assign,assignment,return-value]
    live.ask()
    for _ in range(3):
        clock.now += 2
        found.look()
    assert "cannot be drawn" in json.loads(live.state_file.read_text())["pictures"]


class Watcher:
    """Somebody who watches a training in another thread, as the server does; `then` is done at the first state."""

    def __init__(self, run: Path, then: Any = lambda live: None) -> None:
        self.live, self.states, self._then, self._ends = LiveFolder(run), [], then, threading.Event()
        self.states: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self.live.state_file.exists():
            self.states.append(json.loads(self.live.state_file.read_text()))

    def has_not_seen(self, wanted: Callable[[dict[str, Any]], object]) -> Callable[[Progress], bool]:
        """A callback for the training, which goes on until a state like that was seen."""

        def goes_on(progress: Progress) -> bool:
            slowly(progress)
            return not any(map(wanted, self.states))

        return goes_on

    def _watch(self) -> None:
        while not self._ends.wait(0.02):
            if self.live.ask() and self.live.state_file.exists():
                self.states.append(json.loads(self.live.state_file.read_text()))
                if len(self.states) == 1:
                    self._then(self.live)


def test_a_watched_run_learns_the_same(tmp_path: Path) -> None:
    train(CONFIGS["ppo"], run_dir=tmp_path / "alone", progress=False, loggers=())
    with Watcher(tmp_path / "watched") as watcher:
        train(CONFIGS["ppo"], run_dir=tmp_path / "watched", callback=slowly, progress=False, loggers=())
    assert watcher.states
    alone, watched = outcome(tmp_path / "alone"), outcome(tmp_path / "watched")
    for kind, found in alone.items():
        assert found.keys() == watched[kind].keys()
        for name in found:
            np.testing.assert_array_equal(found[name], watched[kind][name], err_msg=name)


def slowly(_: Progress) -> None:
    time.sleep(0.05)


def test_pictures_parameters_and_parts_of_the_time(tmp_path: Path) -> None:
    config = PPOConfig(
        "Pendulum-v1", num_envs=3, backend="sync", learner="torch", total_steps=1500 * 96, rollout_steps=32,
        minibatch_size=32, epochs=1, hidden_sizes=(8,), randomize={"g": uniform(9.0, 11.0)}, randomize_on="make",
    )  # fmt: skip
    with Watcher(tmp_path / "run") as watcher:
        goes_on = watcher.has_not_seen(lambda state: state["parts"]["policy"] is not None)
        context = RunContext.of(callback=goes_on, progress=False, loggers=(), pictures=True)
        begin_run(config, tmp_path / "run", context, None, {})
    last = watcher.states[-1]
    assert last["pictures"] == "live"
    assert len(last["envs"]) == 3
    assert all(9.0 <= env["parameters"]["g"] <= 11.0 for env in last["envs"])
    parts = next(state["parts"] for state in watcher.states if state["parts"]["policy"] is not None)
    assert 0 < parts["policy"] < parts["collecting"]
    assert parts["update"] > 0
    assert (tmp_path / "run" / ".live" / "frame-0.jpg").read_bytes().startswith(b"\xff\xd8")


def test_a_run_is_stopped_and_saved_by_whoever_watches(tmp_path: Path) -> None:
    config = changed("a2c", total_steps=3200 * 32)
    with Watcher(tmp_path / "run", then=lambda live: live.order("stop")):
        result = train(config, run_dir=tmp_path / "run", callback=slowly, progress=False, loggers=())
    assert not result.finished
    assert result.stopped_by is None
    assert result.step < config.total_steps
    assert RunFolder(tmp_path / "run").checkpoint.exists()


def test_restarts_and_their_causes(tmp_path: Path) -> None:
    config = changed(
        "a2c",
        env_kwargs={"observations": "vector"},
        vector_kwargs={"on_failure": "restart", "max_restarts": 1000},
        total_steps=3000 * 32,
    )
    step, calls = AnySpaceEnv.step, iter(range(10**9))

    def failing(self: AnySpaceEnv, action: Any) -> Any:
        if next(calls) % 200 == 150:
            raise RuntimeError("the motor\nis hot")
        return step(self, action)

    with pytest.MonkeyPatch.context() as patch, Watcher(tmp_path / "run") as watcher:
        patch.setattr(AnySpaceEnv, "step", failing)
        goes_on = watcher.has_not_seen(lambda state: state["restarts"])
        train(config, run_dir=tmp_path / "run", callback=goes_on, progress=False, loggers=())
    restarts = watcher.states[-1]["restarts"]
    assert restarts
    assert {entry["env"] for entry in restarts} <= {0, 1}
    assert all("the motor is hot" in entry["cause"] for entry in restarts)
