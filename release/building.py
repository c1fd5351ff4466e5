"""What all programs in this folder do: run commands, make virtual environments, find what was built."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "release"
CONSTRAINTS = ROOT / "constraints.txt"
BUILD_REQUIRES = ("scikit-build-core>=0.10", "nanobind>=2.2", "numpy>=2.0", "ninja", "cmake")


class CommandError(RuntimeError):
    """A command failed; says which, and the end of what it printed."""


def run(command: Sequence[str | Path], extra: Mapping[str, str] | None = None, timeout: float = 1800) -> str:
    """Runs a command with some variables more in its environment, and returns what it printed."""
    env = {**os.environ, **(extra or {})}
    done = subprocess.run(
        command, env=env, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout
    )
    if done.returncode:
        end = "\n".join(done.stdout.splitlines()[-40:])
        raise CommandError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{end}")
    return done.stdout


def virtual_environment(folder: Path, python: Path, requirements: Sequence[str | Path], *flags: str) -> Path:
    """The interpreter of a virtual environment that has the requirements; made again if they were others."""
    note = folder / "requirements.txt"
    wanted = "\n".join(map(str, [python, *requirements, *flags]))
    interpreter = folder / "bin" / "python"
    if not note.exists() or note.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        run([python, "-m", "venv", folder])
        pip(interpreter, "install", "--upgrade", "pip")
        if requirements:
            pip(interpreter, "install", "-c", CONSTRAINTS, *flags, *requirements)
        note.write_text(wanted)
    return interpreter


def pip(python: Path, *arguments: str | Path) -> str:
    """Has the pip of a virtual environment do something."""
    command, *others = arguments
    return run([python, "-m", "pip", "--disable-pip-version-check", command, "--quiet", *others])


def the_only(folder: Path, pattern: str) -> Path:
    """The one file in a folder that matches."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise FileNotFoundError(f"expected one {pattern} in {folder}, found {[path.name for path in found]}")
    return found[0]
