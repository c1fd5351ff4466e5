"""The soak tool: runs, notices nothing wrong where nothing is, and notices what is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from fleets import BENCHMARKS
from soak import grown
from soaking.faulty import Fault, FaultyEnv
from soaking.trial import Plan, Trial
from soaking.vitals import Vitals, look

from envfleet.vector import AsyncVectorEnv
from envfleet.vector.replay import Replays


def test_it_runs_for_seconds(tmp_path: Path) -> None:
    arguments = ["--minutes", "0.05", "--kills", "8", "--faults", "20", "--seed", "1", "--json", "soak.json"]
    command = [sys.executable, str(BENCHMARKS / "soak.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "Nothing was lost" in done.stdout
    result = json.loads((tmp_path / "soak.json").read_text())
    assert result["mishaps"]["kill from outside"] >= 8
    assert result["faults"] >= 20
    assert result["restarts"] + result["rebuilt"] >= 8
    assert result["transitions"] > 100
    assert result["troubles"] == []


def test_wrong_arguments_are_refused() -> None:
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--num-workers", "9", "--num-envs", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "1..8" in done.stderr


SMALL = Plan(seconds=60, kills=0, num_envs=2, num_workers=2, start_method="fork", seed=0, hangs=False)


@pytest.mark.parametrize("step_timeout", [None, 30.0])
def test_faults_of_all_kinds_are_survived(monkeypatch: pytest.MonkeyPatch, step_timeout: float | None) -> None:
    kinds = cycle([Trial._fail_in_a_reset, Trial._fail_when_made_again, Trial._fail_in_a_call, lambda it: it._pause(0)])
    monkeypatch.setattr(Trial, "_round", lambda trial: next(kinds)(trial))
    plan = replace(SMALL, seconds=0, faults=30, num_envs=4, threads=2, step_timeout=step_timeout)
    found = Trial(plan).run()
    assert found.wrong == []
    assert found.faults >= 30
    assert {name.split()[-1] for name in found.mishaps} == {"reset", "creation", "step", "call", "continue"}


def test_a_fork_in_a_step_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork(trial: Trial) -> None:
        trial._actions[:] = Fault.FORK
        trial._compare(trial._envs.step(trial._actions), range(2))
        trial.findings.mishaps["fork"] += 2

    monkeypatch.setattr(Trial, "_round", fork)
    found = Trial(replace(SMALL, seconds=0, faults=10)).run()
    assert (found.wrong, found.restarts) == ([], 0)


def test_a_wrong_transition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = AsyncVectorEnv.step_wait

    def lie(envs: AsyncVectorEnv, timeout: float | None = None) -> Any:
        result = honest(envs, timeout)
        result[1][1] += 1.0
        return result

    trial = Trial(SMALL)
    monkeypatch.setattr(AsyncVectorEnv, "step_wait", lie)
    assert "environment 1" in trial.run().wrong[0]


def test_a_restart_for_no_reason_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = FaultyEnv.step

    def fail(env: FaultyEnv, action: Any) -> Any:
        if env.index == 1 and env.steps == 3:
            raise RuntimeError("of its own accord")
        return honest(env, action)

    monkeypatch.setattr(FaultyEnv, "step", fail)
    assert "restarted for no reason" in Trial(SMALL).run().wrong[0]


def test_innocents_that_are_not_rebuilt_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replays, "of", lambda *_, **__: None)
    found = Trial(replace(SMALL, kills=20, num_envs=4)).run()
    assert "restarted for no reason" in found.wrong[0]


@pytest.mark.parametrize("name", ["processes", "threads", "descriptors", "shared_files", "memory_bytes"])
def test_growth_is_found(name: str) -> None:
    before = look(0.0)
    after = replace(before, **{name: 2 * getattr(before, name) + 50 * 2**20})
    assert grown([before, before]) == []
    assert len(grown([before, after])) == 1


def test_memory_that_grows_slowly_is_found_and_a_warm_up_is_not() -> None:
    now = look(0.0)

    def looks(memory_mib: Callable[[int], float]) -> list[Vitals]:
        return [replace(now, seconds=s, memory_bytes=round(memory_mib(s) * 2**20)) for s in range(120)]

    assert grown(looks(lambda second: 53 + min(second, 30) / 5)) == []
    assert grown(looks(lambda second: 53 + second % 3)) == []
    assert "memory: 58 MiB in the first half, 63 MiB" in grown(looks(lambda second: 53 + second / 9.5))[0]


def test_what_came_and_went_is_no_growth() -> None:
    now = look(0.0)
    assert grown([now, replace(now, shared_files=now.shared_files + 1), now, now]) == []
    assert len(grown([now, *[replace(now, descriptors=now.descriptors + 1)] * 3])) == 1
