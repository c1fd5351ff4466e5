"""What type checkers see: each line below that is wrong is found, and nothing else is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
from __future__ import annotations

import envfleet
from envfleet import FleetVectorEnv, NativeVectorEnv, backends, make_vec, uniform
from envfleet.backends import BackendName
from envfleet.typing import EnvReference, StepResult


def good(backend: BackendName, what: EnvReference) -> StepResult:
    native: NativeVectorEnv = make_vec("CartPole-v1", 4, "native", autoreset_mode="SAME_STEP")
    native.set_state(0, native.get_state(1))
    print(make_vec("CartPole-v1", 4, backend="sync").envs[0].spec)
    print(make_vec("CartPole-v1", 4, backend="process", num_workers=2, on_failure="restart").processes)
    print(make_vec("CartPole-v1", backend="ray").num_workers, envfleet.train.PPOConfig("CartPole-v1").backend)
    mine = backends.register(backends.Backend("mine", backends.from_functions(envfleet.SyncVectorEnv), "here"))
    fleet: FleetVectorEnv = make_vec(what, 4, mine, gravity=9.81, randomize={"g": uniform(1, 2)})
    fleet = make_vec(what, 4, backend, first_ready=2)
    return fleet.recv()


def bad(backend: str) -> None:
    make_vec("CartPole-v1", 4, "sync").get_state(0)  # wrong
    make_vec("CartPole-v1", 4).get_state(0)  # wrong
    make_vec("CartPole-v1", 4, backend="proces")  # wrong
    make_vec("CartPole-v1", 4, backend)  # wrong
    make_vec("CartPole-v1", "4")  # wrong
    make_vec("CartPole-v1", on_failure="restrat")  # wrong
    make_vec("CartPole-v1", randomize=[uniform(1, 2)])  # wrong
    make_vec("CartPole-v1", randomize_on="step")  # wrong
    make_vec("CartPole-v1", wrappers=3)  # wrong
    envfleet.SyncVectorEnv([lambda: 3])  # wrong
    envfleet.train.PPOConfig("CartPole-v1", backend="proces")  # wrong
"""


def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    # In the repository: with the settings, and the cache, of `make check`.
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    found = {int(line) for line in re.findall(r"program\.py:(\d+): error:", done.stdout)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, done.stdout + done.stderr
