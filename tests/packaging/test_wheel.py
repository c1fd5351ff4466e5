"""What `pip install` gets: how large, how soon, what is in it, and what still works without Box2D's sources."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.only_with("ENVFLEET_WHEELS"),  # builds everything twice: make wheel-check
]

ROOT = Path(__file__).parents[2]
CORES = 2
MOST_BYTES, MOST_SECONDS = 10 * 2**20, 180.0


@dataclass(frozen=True)
class Wheel:
    """A wheel that was built, and the processor time that took."""

    path: Path
    seconds: float

    def names(self) -> list[str]:
        """The files in it."""
        with zipfile.ZipFile(self.path) as archive:
            return archive.namelist()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """As built where pip has an index."""
    return build(ROOT, tmp_path_factory.mktemp("whole"), {})


@pytest.fixture(scope="module")
def without_box2d(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """As built where pip has none, and nobody has left the archive of Box2D's sources."""
    folder = tmp_path_factory.mktemp("without")
    ours = shutil.ignore_patterns(".*", "build", "dist", "third_party")
    sources = shutil.copytree(ROOT, folder / "sources", ignore=ours)
    (folder / "nothing").mkdir()
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "nothing")}
    return build(sources, folder, nowhere)


@pytest.fixture(scope="module")
def python(without_box2d: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it, which sees the packages of this one, but not its envfleet."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([folder / "bin" / "python", *install, without_box2d.path], check=True, timeout=100)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def build(sources: Path, folder: Path, environment: dict[str, str]) -> Wheel:
    options = ["--quiet", "--no-deps", "--no-build-isolation", f"--config-settings=build-dir={folder / 'build'}"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", *options, "-w", folder, sources]
    begin = processor_time()
    subprocess.run(command, env={**os.environ, **environment}, check=True, timeout=800)
    (path,) = folder.glob("*.whl")
    return Wheel(path, processor_time() - begin)


def processor_time() -> float:
    """Of all that was started and has ended, in seconds: what else the machine does is no fault of the build."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(python: Path, program: str, folder: Path) -> str:
    """What a program prints, run elsewhere than in this repository."""
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=200, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["whole", "without_box2d"])
def test_it_is_small_and_soon_built(kind: str, request: pytest.FixtureRequest) -> None:
    wheel: Wheel = request.getfixturevalue(kind)
    print(f"{kind}: {wheel.path.stat().st_size / 2**20:.2f} MB, {wheel.seconds:.0f} s of processor time")
    assert wheel.path.stat().st_size < MOST_BYTES
    assert wheel.seconds / CORES < MOST_SECONDS


@pytest.mark.parametrize("kind", ["whole", "without_box2d"])
def test_it_brings_the_header_and_nothing_of_the_tests(kind: str, request: pytest.FixtureRequest) -> None:
    names = request.getfixturevalue(kind).names()
    assert "envfleet/include/envfleet_env.h" in names
    assert "envfleet/py.typed" in names
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"envfleet"}
    licences = [name for name in names if name.endswith("Box2D-License.txt")]
    assert len(licences) == (kind == "whole")


EVERYTHING_ELSE = """
from pathlib import Path

import gymnasium
import envfleet
from envfleet.native import catalogue, include_dir

assert Path(include_dir(), "envfleet_env.h").exists()
made = 0
for spec in [spec for spec in gymnasium.registry.values() if spec.namespace is None]:
    kind = catalogue.find(spec)
    if kind is not None and not kind.needs:
        with envfleet.make_vec(spec, 3, "native") as envs:
            envs.reset(seed=1)
            envs.step(envs.action_space.sample())
        made += 1
with envfleet.make_vec("CartPole-v1", 3, "process") as envs:
    envs.reset(seed=1)
    envs.step(envs.action_space.sample())
print(made)
"""

BOX2D = """
import warnings
warnings.simplefilter("ignore")
import envfleet

for env_id in ("LunarLander-v3", "BipedalWalker-v3"):
    try:
        envfleet.make_vec(env_id, 2, "native")
    except TypeError as error:
        print(error)
    with envfleet.make_vec(env_id, 2) as envs:
        envs.reset(seed=1)
        envs.step(envs.action_space.sample())
        print(type(envs).__name__, envs.plan)
"""


def test_without_box2d_everything_else_works(python: Path, tmp_path: Path) -> None:
    assert int(run(python, EVERYTHING_ELSE, tmp_path)) >= 23


def test_without_box2d_a_sentence_says_what_is_missing(python: Path, tmp_path: Path) -> None:
    lines = run(python, BOX2D, tmp_path).splitlines()
    assert len(lines) == 4
    for env_id, refused, plan in zip(("LunarLander-v3", "BipedalWalker-v3"), lines[::2], lines[1::2], strict=True):
        assert refused.startswith(f"backend='native' does not support {env_id} in this installation: it needs")
        assert plan.startswith(("SyncVectorEnv", "AsyncVectorEnv"))
        assert "it needs the sources of Box2D" in plan
