"""The wheels in dist/, as a user gets them: installed in fresh environments, without a compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "release"))

from building import BUILD, CONSTRAINTS, DIST  # noqa: E402
from matrix import BESIDE, conformance  # noqa: E402
from pythons import Python, pythons  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.only_with("ENVFLEET_DIST"),  # make wheels, which builds them first
]

MODULES = {"_core", "_learner", "_native"}
OLDEST_GLIBC = (2, 31)  # what exp, log and pow ask for is 2.29; there is no tag between 2_28 and 2_31
MOST_SECONDS = 120.0
LICENCES = ("LICENSE", "NOTICE")


@pytest.fixture(scope="module", params=pythons(), ids=lambda python: python.tag)
def python(request: pytest.FixtureRequest) -> Python:
    """Every CPython of this machine."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def wheel(python: Python) -> Path:
    """The wheel for it."""
    (path,) = DIST.glob(f"envfleet-*-{python.tag}-*x86_64.whl")
    return path


def quiet_environment(folder: Path) -> dict[str, str]:
    """No compiler, nor anything else but the virtual environment's programs, on PATH."""
    environment = {**os.environ, "PATH": str(folder / "bin")}
    for program in ("cc", "c++", "gcc", "g++", "clang", "cmake", "make", "ninja"):
        assert shutil.which(program, path=environment["PATH"]) is None
    return environment


def installed(folder: Path, python: Python, requirements: list[str]) -> dict[str, str]:
    """Makes a virtual environment, installs wheels there, and returns its environment variables."""
    subprocess.run([python.path, "-m", "venv", folder], check=True)
    environment = quiet_environment(folder)
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command = [*pip, "--only-binary=:all:", "-c", CONSTRAINTS, *requirements]
    subprocess.run(command, check=True, env=environment, timeout=600)
    return environment


def test_it_runs_where_its_tag_says(wheel: Path) -> None:
    tools = BUILD / "tools" / "bin" / "python"
    said = subprocess.run([tools, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=True).stdout
    (tag,) = re.findall(r'platform tag: "(\w+)"', " ".join(said.split()))
    assert tag in wheel.name
    print(f"{wheel.name}: {tag}")
    glibc = re.findall(r"manylinux_(\d+)_(\d+)_x86_64", tag)[0]
    assert tuple(map(int, glibc)) <= OLDEST_GLIBC


def test_it_brings_nothing_but_envfleet_and_its_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (box2d,) = [name for name in names if name.endswith("Box2D-License.txt")]
        assert "Erin Catto" in archive.read(box2d).decode()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"envfleet"}
    assert {Path(name).name.partition(".")[0] for name in names if name.endswith(".so")} == MODULES
    for licence in LICENCES:
        assert any(name.endswith(f".dist-info/licenses/{licence}") for name in names)


def test_the_source_distribution_has_all_that_a_build_needs() -> None:
    (sdist,) = DIST.glob("envfleet-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"third_party/box2d-py-2.3.8.tar.gz", "CMakeLists.txt", "NOTICE", "cpp/bindings/native.cpp"} <= names


def test_it_conforms_without_a_compiler(python: Python, wheel: Path, tmp_path: Path) -> None:
    environment = installed(tmp_path / "venv", python, [str(wheel), "gymnasium>=1.4", *BESIDE])
    command = conformance(tmp_path / "venv" / "bin" / "python")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.splitlines()[-1])


def test_the_lander_trains_without_a_compiler(tmp_path: Path) -> None:
    """On the Python that runs this, which is the one that `constraints.txt` has a PyTorch for."""
    (python,) = [each for each in pythons() if each.version[:2] == sys.version_info[:2]]
    (wheel,) = DIST.glob(f"envfleet-*-{python.tag}-*x86_64.whl")
    environment = installed(tmp_path / "venv", python, [f"{wheel}[train]"])
    command = [tmp_path / "venv" / "bin" / "envfleet", "train", "LunarLander-v3"]
    begun = time.monotonic()
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begun
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"envfleet train LunarLander-v3: {seconds:.0f} s")
    print("\n".join(done.stdout.splitlines()[-8:]))
    assert seconds < MOST_SECONDS
