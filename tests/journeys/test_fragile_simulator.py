"""Somebody trains on 64 copies of a slow simulator that crashes and hangs now and then, from an empty folder."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from envfleet import make_vec
from envfleet.train.running.metrics import read_metrics

COPIES = 64
STEP_TIMEOUT = 0.25
ROLLOUT = COPIES * 32
TOTAL = 14 * ROLLOUT
METRICS = Path("run/metrics.csv")

SIMULATOR = '''
import os
import time

import gymnasium
import numpy as np


class Simulator(gymnasium.Env):
    """Wants to be held near 0. A step takes 20 ms; a few steps end the process, or never end."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, faults=True):
        self.faults = faults

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1)
        return self.look(), {}

    def step(self, action):
        time.sleep(0.02)
        luck = self.np_random.random()
        if self.faults and luck < CRASHES:
            os._exit(3)
        if self.faults and luck > 1 - HANGS:
            time.sleep(3600)
        self.place = float(np.clip(self.place + (0.1 if action else -0.1), -1, 1))
        return self.look(), -abs(self.place), False, False, {"is_success": abs(self.place) < 0.2}

    def look(self):
        return np.array([self.place], np.float32)


gymnasium.register("Simulator-v0", Simulator, max_episode_steps=40)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, but for the simulator: one of its steps in a run ends the process, and one never ends.

    With seed 31 that is in the first rollout and in the eleventh.
    """
    rates = f"CRASHES, HANGS = {1 / TOTAL}, {1 / TOTAL}\n"
    (tmp_path / "simulator.py").write_text(rates + SIMULATOR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@contextmanager
def training(argv: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """`envfleet train`, which does not outlive the block."""
    command = [sys.executable, "-m", "envfleet", "train", *argv, "--no-showcase"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def await_first_row(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 100
    while not METRICS.exists() or not METRICS.read_text():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def engine_alone(folder: Path) -> float:
    """Seconds for as many steps as a rollout has: the same environments without faults, and nothing else to do."""
    found = importlib.util.spec_from_file_location("simulator", folder / "simulator.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    engine = {"on_failure": "restart", "step_timeout": STEP_TIMEOUT, "autoreset_mode": "SameStep", "copy": False}
    with make_vec("Simulator-v0", COPIES, vector_kwargs=engine, faults=False) as envs:
        envs.reset(seed=0)
        actions = np.random.default_rng(0).integers(2, size=(ROLLOUT // COPIES, COPIES))
        ends = []
        for _ in range(6):
            for some in actions:
                envs.step(some)
            ends.append(time.perf_counter())
        return float(np.median(np.diff(ends)))


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_is_trained_through_crashes_and_hangs_stopped_and_resumed(folder: Path) -> None:
    sizes = f"--algo a2c --num-envs {COPIES} --rollout-steps 32 --total-steps {TOTAL} --critic-updates 2 --seed 31"
    engine = f"--on-failure restart --step-timeout {STEP_TIMEOUT}"
    argv = f"simulator:Simulator-v0 {sizes} {engine} --run-dir run --eval-episodes 0".split()
    with training(argv) as first:
        await_first_row(first)
        first.send_signal(signal.SIGINT)
        output, _ = first.communicate(timeout=60)
    assert first.returncode == 128 + signal.SIGINT, output
    assert "64 of them: a step takes" in output  # the plan thinks whatever is passed
    with training(["--resume", "run"]) as second:
        output, _ = second.communicate(timeout=100)
    assert second.returncode == 0, output
    metrics = read_metrics("run")
    assert metrics["restarts"][0] >= 1, output
    assert metrics["restarts"][-1] >= 2, output
    assert metrics["step"][-1] == TOTAL - metrics["restarts"][-1]
    assert set(metrics["episode_length"][np.isfinite(metrics["episode_length"])].tolist()) == {40.0}
    assert "is_success" in metrics
    assert f"{metrics['restarts'][-1]:.0f} restarts of environments after failures" in output
    # The median leaves out the rollouts with a fault, which wait for it; those are looked at by themselves.
    rollout, ideal = float(np.median(np.diff(metrics["seconds"]))), engine_alone(folder)
    assert ideal >= 0.9 * rollout, f"{rollout:.3f} s for a rollout in training, {ideal:.3f} s with the engine alone"
    faults = metrics["seconds"][-1] - len(metrics["seconds"]) * rollout
    assert faults <= metrics["restarts"][-1] * (STEP_TIMEOUT + 1), f"faults and starts took {faults:.3f} s"
