"""The C++ tests: the engine and the compiled environments without Python. `make sanitize` looks closer."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "build" / "cpp-tests"
NAMES = sorted(path.stem for path in (ROOT / "cpp" / "tests").glob("*.cpp"))
COMPILER = shlex.split(os.environ.get("CXX", "c++"))
FLAGS = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-pthread"]

pytestmark = [
    pytest.mark.skipif(shutil.which(COMPILER[0]) is None, reason=f"there is no compiler {COMPILER[0]}"),
    pytest.mark.timeout(300),  # it compiles
]


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    """The programs, compiled side by side."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return dict(zip(NAMES, threads.map(compiled, NAMES), strict=True))


def compiled(name: str) -> Path:
    """The program of a test, from an earlier run if it was made of the same."""
    numpys = Path(np.get_include())
    where = [f"-I{ROOT / 'cpp'}", "-isystem", str(numpys)]
    library = numpys.parents[1] / "random" / "lib" / "libnpyrandom.a"
    source = ROOT / "cpp" / "tests" / f"{name}.cpp"
    command = [*COMPILER, *FLAGS, *where, str(source), str(library)]
    program = PROGRAMS / f"{name}-{made_of(source, command)}"
    if not program.exists():
        PROGRAMS.mkdir(parents=True, exist_ok=True)
        for older in PROGRAMS.glob(f"{name}-*"):
            if not older.suffix:
                older.unlink(missing_ok=True)
        fresh = program.with_name(f"{program.name}.{os.getpid()}")  # whole or not at all, whoever else compiles it
        subprocess.run([*command, "-o", fresh], check=True)
        fresh.rename(program)
    return program


def made_of(source: Path, command: list[str]) -> str:
    """A fingerprint of all sources and headers, of NumPy, of the compiler and of what it is told."""
    version = subprocess.run([*COMPILER, "--version"], capture_output=True, check=True).stdout
    found = hashlib.sha256(version + np.__version__.encode() + repr(command).encode())
    for path in [source, *sorted((ROOT / "cpp").rglob("*.h")), *sorted((ROOT / "cpp" / "learner").glob("*.cpp"))]:
        found.update(str(path).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def test_there_are_programs_to_run() -> None:
    assert {"environments", "foreign", "pool", "random", "team"} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_program_ends_well(name: str, programs: dict[str, Path]) -> None:
    done = subprocess.run([programs[name]], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
