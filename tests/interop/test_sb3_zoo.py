"""Stable-Baselines3 with rl-baselines3-zoo and moviepy, which want other versions than ours; and its own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from coming_from import FOLDER
from stable_baselines3 import A2C
from stable_baselines3.common.vec_env import VecVideoRecorder

from envfleet.adapters.sb3 import make_sb3_vec_env

HERE = Path(__file__).parent


def test_a_video_is_recorded(tmp_path: Path) -> None:
    vec_env = make_sb3_vec_env("CartPole-v1", 2, seed=5)
    filmed = VecVideoRecorder(vec_env, str(tmp_path), lambda step: step == 0, video_length=5)
    filmed.reset()
    for _ in range(7):
        filmed.step(np.zeros(2, int))
    filmed.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".mp4"]


@pytest.mark.timeout(400)
def test_the_zoo_trains_on_fleets_by_the_script_of_the_page(tmp_path: Path) -> None:
    (block,) = re.findall(r"```py\n(import sys\n.*?rl_zoo3.*?)```", (FOLDER / "sb3.md").read_text(), re.DOTALL)
    script = tmp_path / "train_on_fleets.py"
    script.write_text(block + "print(type(rl_zoo3.exp_manager.make_vec_env(None, None, None, n_envs=2)).__name__)\n")
    given = ["--algo", "a2c", "--env", "CartPole-v1", "-n", "300", "--log-folder", "logs", "--eval-freq", "-1"]
    command = [sys.executable, str(script), *given, "--num-threads", "1", "--verbose", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "FleetVecEnv"
    assert A2C.load(next(tmp_path.glob("logs/a2c/*/CartPole-v1.zip"))).num_timesteps >= 300


@pytest.fixture(scope="session")
def their_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests of the very version that is installed, from its source distribution."""
    folder = tmp_path_factory.mktemp("sb3")
    package = f"stable-baselines3=={version('stable-baselines3')}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-binary", ":all:", "--dest", str(folder), package], check=True, timeout=300)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    (tests,) = folder.glob("*/tests")
    return tests


KNOWN_DIFFERENCES = {
    "test_vecenv_func_checker": "DummyVecEnv refuses the same instance twice; a fleet accepts it",
    "test_check_nan": "it steps one environment with two actions, which a fleet refuses",
}
"""Their tests that fail on a fleet, and why."""


@pytest.mark.timeout(900)
def test_their_own_tests_pass_on_fleets_but_for_known_differences(their_tests: Path) -> None:
    kinds = ("envs", "check_nan", "extract_dict_obs", "monitor", "normalize")
    files = [f"test_vec_{kind}.py" for kind in kinds]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "sb3_on_fleets", "-p", "no:cacheprovider", "-rf", *files]
    paths = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=their_tests, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=800
    )
    failed = set(re.findall(r"^FAILED [\w.]+::(\w+)", done.stdout, re.MULTILINE))
    assert failed == KNOWN_DIFFERENCES.keys(), done.stdout[-4000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) >= 57
