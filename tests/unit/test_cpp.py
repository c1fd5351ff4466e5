"""The C++ tests: the engine and the compiled environments without Python. `make sanitize` looks closer."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "cpp" / "tests").glob("*.cpp"))
COMPILER = shlex.split(os.environ.get("CXX", "c++"))
FLAGS = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-pthread"]

pytestmark = [
    pytest.mark.skipif(shutil.which(COMPILER[0]) is None, reason=f"there is no compiler {COMPILER[0]}"),
    pytest.mark.timeout(300),  # it compiles
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs are, compiled side by side."""
    folder = tmp_path_factory.mktemp("cpp")
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda name: compile_test(name, folder), NAMES))
    return folder


def compile_test(name: str, folder: Path) -> None:
    numpys = Path(np.get_include())
    where = [f"-I{ROOT / 'cpp'}", "-isystem", numpys]
    library = numpys.parents[1] / "random" / "lib" / "libnpyrandom.a"
    source = ROOT / "cpp" / "tests" / f"{name}.cpp"
    subprocess.run([*COMPILER, *FLAGS, *where, source, library, "-o", folder / name], check=True)


def test_there_are_programs_to_run() -> None:
    assert {"environments", "foreign", "pool", "random", "team"} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_program_ends_well(name: str, folder: Path) -> None:
    done = subprocess.run([folder / name], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
