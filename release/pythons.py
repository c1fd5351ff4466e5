"""The CPythons of this machine, one of each minor version from the oldest that is supported."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST = (3, 10)
NEWEST_TRIED = 20

ABOUT = "import sys, platform, venv, ensurepip; print(platform.python_implementation(), *sys.version_info[:3])"


@dataclass(frozen=True)
class Python:
    """An interpreter that can make virtual environments.

    Attributes:
        path: Where it is.
        version: Three numbers.
    """

    path: Path
    version: tuple[int, int, int]

    @property
    def tag(self) -> str:
        """As wheels say it: cp311."""
        return f"cp{self.version[0]}{self.version[1]}"

    @property
    def name(self) -> str:
        """As people say it: 3.11.7."""
        return ".".join(map(str, self.version))


def pythons() -> list[Python]:
    """The newest patch release of each minor version that is on PATH or that pyenv has installed, oldest first."""
    found: dict[tuple[int, int], Python] = {}
    for path in _candidates():
        python = _asked(path)
        if python is None or python.version[:2] < OLDEST:
            continue
        other = found.get(python.version[:2])
        if other is None or other.version < python.version:
            found[python.version[:2]] = python
    return [found[minor] for minor in sorted(found)]


def _candidates() -> list[Path]:
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST_TRIED)]
    paths = [Path(path) for name in names if (path := shutil.which(name)) and "shims" not in Path(path).parts]
    pyenv = shutil.which("pyenv")
    if pyenv:
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()
        paths += sorted(Path(root, "versions").glob("3.*/bin/python"))
    return paths


def _asked(path: Path) -> Python | None:
    """Nothing of what cannot make virtual environments, as Debian's without python3-venv, or is not CPython."""
    done = subprocess.run([path, "-c", ABOUT], capture_output=True, text=True, check=False)
    name, *numbers = done.stdout.split() or [""]
    if done.returncode or name != "CPython":
        return None
    major, minor, patch = map(int, numbers)
    return Python(path, (major, minor, patch))


if __name__ == "__main__":
    for python in pythons():
        print(python.name, python.path)
