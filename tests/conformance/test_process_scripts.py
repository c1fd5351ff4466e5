"""Every start method works from a plain script: no main guard, classes and lambdas of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from process_fleets import EVERY_START_METHOD, SOON

SCRIPT = """
import sys
import gymnasium as gym
import numpy as np
from envfleet.vector import AsyncVectorEnv, SyncVectorEnv

FACTOR = 3
print("running", flush=True)

class Note:
    def __init__(self, text):
        self.text = text

class OwnError(Exception):
    pass

def scaled(value):
    return FACTOR * value

class OwnSpace(gym.Space):
    def sample(self, mask=None, probability=None):
        return Note("sampled")

    def contains(self, x):
        return isinstance(x, Note)

    def __eq__(self, other):
        return isinstance(other, OwnSpace)

class OwnEnv(gym.Env):
    observation_space = gym.spaces.Dict(x=gym.spaces.Box(-1e9, 1e9, (2,), np.float64), note=OwnSpace())
    action_space = gym.spaces.Discrete(5)

    def __init__(self, index):
        self.index = index

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def observe(self):
        x = np.array([scaled(self.index + 10 * self.steps), self.np_random.random()])
        return {"x": x, "note": Note(f"{self.index} {self.steps}")}

    def step(self, action):
        if action == 4:
            raise OwnError(f"own {self.index}")
        self.steps += 1
        return self.observe(), float(action), self.steps == 2, False, {"who": f"env {self.index}"}

    def note(self, note):
        return Note(note.text + str(self.index))

offset = 1
env_fns = [lambda index=index: OwnEnv(index + offset) for index in range(3)]

def trajectory(envs):
    rows = [*parts(envs.reset(seed=5)[0])]
    for step in range(6):
        observations, rewards, terminated, truncated, infos = envs.step(np.full(3, step % 4))
        rows += [*parts(observations), rewards, terminated, truncated, infos.get("who")]
    return rows

def parts(observations):
    assert all(type(note) is Note for note in observations["note"])
    return observations["x"], [note.text for note in observations["note"]]

envs = AsyncVectorEnv(env_fns, context=sys.argv[1], num_workers=2)
sync = SyncVectorEnv(env_fns)
for ours, theirs in zip(trajectory(envs), trajectory(sync), strict=True):
    np.testing.assert_array_equal(ours, theirs)
notes = envs.call("note", Note("hello "))
assert all(type(note) is Note for note in notes), notes
assert [note.text for note in notes] == ["hello 1", "hello 2", "hello 3"]
try:
    envs.step(np.array([0, 4, 0]))
except OwnError as error:
    assert "own 2" in str(error)
else:
    raise AssertionError("no error")
envs.reset()
envs.close()
print("done", flush=True)
"""


def check(completed: subprocess.CompletedProcess[str]) -> None:
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    # Once: a worker that ran the script again would say so too.
    assert completed.stdout.split() == ["running", "done"]


def run(arguments: list[str], text: str | None = None, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], input=text, capture_output=True, text=True, timeout=6 * SOON, cwd=folder
    )


@EVERY_START_METHOD
def test_a_script_without_a_guard(start_method: str, tmp_path: Path) -> None:
    path = tmp_path / "plain script.py"
    path.write_text(SCRIPT)
    check(run([str(path), start_method]))


@EVERY_START_METHOD
def test_a_module(start_method: str, tmp_path: Path) -> None:
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "start.py").write_text(SCRIPT)
    check(run(["-m", "mypackage.start", start_method], folder=tmp_path))


@EVERY_START_METHOD
def test_code_on_the_command_line(start_method: str) -> None:
    check(run(["-c", SCRIPT, start_method]))


@pytest.mark.parametrize("start_method", ["spawn"])
def test_code_from_standard_input(start_method: str) -> None:
    check(run(["-", start_method], text=SCRIPT))


@EVERY_START_METHOD
def test_a_script_with_a_guard(start_method: str, tmp_path: Path) -> None:
    head, body = SCRIPT.split("envs = AsyncVectorEnv", 1)
    guarded = "envs = AsyncVectorEnv" + body
    indented = "".join(f"    {line}\n" if line else "\n" for line in guarded.splitlines())
    path = tmp_path / "guarded.py"
    path.write_text(f'{head}\nif __name__ == "__main__":\n{indented}')
    check(run([str(path), start_method]))
