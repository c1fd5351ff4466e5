"""The way of a newcomer with an environment of their own: from an empty folder to an agent, by commands and a notebook.

Every command is run in that folder, which is no part of `sys.path`: as the installed program, not as `python -m`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from scripts import run_script

from envfleet.cli import main

GRID = """\
import gymnasium
import numpy as np
from gymnasium import spaces


class Grid(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, size=4, reward=1.0, render_mode=None):
        self.size, self.reward, self.render_mode = size, reward, render_mode
        self.action_space = spaces.Discrete(4)
        image = spaces.Box(0, 255, (40, 40, 3), np.uint8)
        self.observation_space = spaces.Dict({"image": image, "steps": spaces.Box(0, 1, (1,), np.float32)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = self.np_random.integers(0, self.size, 2), 0
        return self.observe(), {}

    def step(self, action):
        move = [(0, 1), (1, 0), (0, -1), (-1, 0)][action]
        self.place, self.steps = np.clip(self.place + move, 0, self.size - 1), self.steps + 1
        done = bool((self.place == self.size - 1).all())
        return self.observe(), self.reward if done else -0.01, done, self.steps >= 12, {}

    def observe(self):
        return {"image": self.render(), "steps": np.array([self.steps / 12], np.float32)}

    def render(self):
        image, (y, x) = np.zeros((40, 40, 3), np.uint8), self.place * (40 // self.size)
        image[y : y + 40 // self.size, x : x + 40 // self.size] = 255
        return image
"""
REGISTERED = f'{GRID}\n\ngymnasium.register("OwnGrid-v0", entry_point="my_registered_env:Grid", max_episode_steps=9)\n'

TINY = ["--num-envs", "2", "--rollout-steps", "8", "--total-steps", "32", "--hidden-sizes", "8", "--eval-episodes", "2"]

NOTEBOOK = [
    GRID,
    """
from envfleet import make_vec
from envfleet.train import PPOConfig, evaluate, load_agent, resume, showcase, train

settings = dict(num_envs=2, rollout_steps=8, minibatch_size=8, total_steps=32, hidden_sizes=(8,))
result = train(PPOConfig(Grid, env_kwargs={"size": 5}, **settings), run_dir="notebook")
score = evaluate(result.agent, episodes=2)
""",
    """
with make_vec(Grid, 2, "process", {"context": "spawn"}, size=5) as envs:
    envs.reset(seed=0)
assert evaluate("notebook", episodes=2) == score == evaluate(load_agent("notebook", env=Grid), episodes=2)
assert showcase("notebook", episodes=1).path.exists()
assert resume("notebook", env=Grid, progress=False).finished
""",
]
"""The cells of a notebook."""

KERNEL = """
import json, sys, types

sys.modules["__main__"] = main = types.ModuleType("__main__")
for number, cell in enumerate(json.loads(open("notebook.json").read())):
    exec(compile(cell, f"<cell {number}>", "exec"), main.__dict__)
"""
"""Does what a notebook's kernel does: the cells are the main module, and that has no file."""

Envfleet = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the user stands: the files of two environments."""
    folder = tmp_path_factory.mktemp("project of mine")
    (folder / "my_env.py").write_text(GRID)
    (folder / "my_registered_env.py").write_text(REGISTERED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("COLUMNS", "80")
        yield folder


@pytest.fixture(scope="module")
def envfleet(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Envfleet:
    """Runs the console script in that folder; returns what it prints."""
    # So that all the libraries are imported once, and not by every copy of this process that runs a command.
    here = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "CartPole-v1", *TINY, "--run-dir", str(here), "--no-showcase"]) == 0
    script = tmp_path_factory.mktemp("bin") / "envfleet"
    script.write_text("import sys\nfrom envfleet.cli import main\nsys.exit(main())\n")

    def run(*arguments: str | Path, code: int = 0) -> str:
        ended, output, errors = run_script(script, [str(text) for text in arguments], folder)
        assert ended == code, output + errors
        assert "Traceback" not in errors
        return output + errors

    return run


@pytest.fixture(scope="module")
def printed(envfleet: Envfleet) -> str:
    """What a training prints."""
    return envfleet("train", "my_env.py:Grid", "--algo", "ppo", "--minibatch-size", "8", *TINY)


@pytest.fixture
def run_dir(printed: str, folder: Path) -> Path:
    """The folder of that training, as it is named there."""
    (found,) = re.findall(r"^run folder: (.*)$", printed, re.MULTILINE)
    assert found.startswith("runs/my_env-Grid/ppo-seed0-")
    assert (folder / found / "showcase.mp4").exists()
    return Path(found)


def test_what_is_printed_to_try_next_works_as_it_is_printed(printed, folder):
    """All of them at once, in a shell: each takes seconds to import torch."""
    commands = [line.strip() for line in printed.partition("To try next:\n")[2].splitlines()]
    assert [re.findall(r"evaluate|showcase|tensorboard", command)[0] for command in commands] == [
        "evaluate",
        "showcase",
        "tensorboard",
    ]
    running = [
        subprocess.Popen(f"exec {command}", shell=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for command in commands
    ]
    *ending, server = running
    try:
        for process in ending:
            output, _ = process.communicate(timeout=100)
            assert process.returncode == 0, output.decode()
        assert server.stdout is not None
        assert any(b"http://" in line for line in server.stdout)
    finally:
        for process in running:
            process.kill()
            process.communicate()


def test_every_command_takes_the_run_or_the_environment(envfleet, run_dir, folder):
    scores = json.loads(envfleet("evaluate", run_dir, "--episodes", "2", "--json"))
    assert scores["env_id"] == "my_env.py:Grid"
    assert "reward=2" in envfleet("evaluate", run_dir, "--episodes", "2", "--sweep", "reward=1,2")
    assert "video: " in envfleet("showcase", run_dir, "--episodes", "1", "--output", "film.mp4")
    assert "curves.png" in envfleet("plot", run_dir)
    assert 'make_vec("my_env.py:Grid", 2, ' in envfleet("tune", "my_env.py:Grid", "--num-envs", "2", "--seconds", "2")
    assert "To try next" in envfleet("train", "--resume", run_dir, "--eval-episodes", "0", "--no-showcase")


@pytest.mark.parametrize("env", ["my_registered_env:OwnGrid-v0", "my_registered_env:Grid"])
def test_a_module_of_the_present_folder_is_found_also_by_worker_processes(env, envfleet, folder):
    run_dir = folder / env.replace(":", "-")
    varied = ["--randomize", "reward=uniform(0.5,1.5)", "--env-kwargs", "size=5"]
    options = ["--backend", "process", "--run-dir", run_dir, "--no-showcase", "--loggers"]
    envfleet("train", env, *TINY[:-2], "--eval-episodes", "0", *varied, *options)
    assert json.loads((run_dir / "config.json").read_text())["config"]["env_id"] == env
    found = json.loads(envfleet("evaluate", run_dir, "--episodes", "2", "--backend", "process", "--json"))
    assert found["max_length"] <= (9 if env.endswith("v0") else 12)


def test_a_class_without_a_time_limit_gets_one_by_an_argument(envfleet, folder):
    (folder / "endless.py").write_text(GRID.replace("self.steps >= 12", "False").replace("if done", "if False"))
    options = ["--run-dir", "endless", "--no-showcase", "--env-kwargs", "max_episode_steps=5"]
    envfleet("train", "endless.py:Grid", *TINY, *options)
    found = json.loads(envfleet("evaluate", "endless", "--episodes", "4", "--json"))
    assert found["max_length"] <= 5


def test_a_run_that_somebody_sent_executes_nothing_unasked(envfleet, run_dir, folder):
    (folder / run_dir).rename(folder / "sent")
    try:
        refused = envfleet("evaluate", "sent", "--episodes", "1", code=1)
        assert "names a module or file that would be imported, which executes it: my_env.py" in refused
        envfleet("evaluate", "sent", "--episodes", "1", "--allow-module", "my_env.py")
    finally:
        (folder / "sent").rename(folder / run_dir)


def test_a_notebook_trains_the_class_of_a_cell(folder, envfleet):
    (folder / "notebook.json").write_text(json.dumps(NOTEBOOK))
    (folder / "kernel.py").write_text(KERNEL)
    code, output, errors = run_script(folder / "kernel.py", [], folder)
    assert code == 0, output + errors
    assert "load the agent with load_agent('notebook', env=Grid)" in output
    refused = envfleet("evaluate", "notebook", code=1)
    assert "load_agent(run, env=Grid)" in refused
    assert "FILE.py:CLASS" in refused


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ("my_env.py:Gird", "my_env.py has no environment 'Gird' (did you mean 'Grid'?); it has Grid."),
        ("my_registered_env:OwnGrid-v1", "(did you mean 'OwnGrid-v0'?); it has Grid, OwnGrid-v0."),
        ("my_evn.py:Grid", "(did you mean 'my_env.py'?)"),
        ("no_such_module:Grid", "There is no module 'no_such_module' to import"),
        ("my_env.py", "say which of its classes, as my_env.py:CLASS."),
        ("my_env", "a file my_env.py: say which of its classes, as my_env.py:CLASS."),
        ("broken.py:Grid", "broken.py cannot be imported: NameError: name 'nonsense' is not defined (line 3 of"),
        ("json.py:Grid", "'json' is also the name of"),
        ("nothing.py:make", "the environment cannot be made: TypeError: make must make a gymnasium.Env, but it"),
        ("nothing.py:Thing", "Thing is a class without step() and reset(), so no gymnasium.Env"),
        ("LunarLander-v4", "There is no environment 'LunarLander-v4'; did you mean 'LunarLander-v3'?"),
        ("lunarlander", "There is no environment 'lunarlander'; did you mean 'LunarLander-v3'?"),
    ],
)
def test_a_wrong_name_is_refused_in_a_sentence(env, sentence, envfleet, folder):
    (folder / "broken.py").write_text("import gymnasium\n\nnonsense()\n")
    (folder / "json.py").write_text(GRID)
    (folder / "nothing.py").write_text("def make():\n    pass\n\n\nclass Thing:\n    pass\n")
    said = envfleet("train", env, *TINY, code=1)
    assert sentence in said
    assert len(said.splitlines()) <= 2
