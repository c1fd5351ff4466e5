"""Stable-Baselines3 in a virtual environment of its own: its pins must not decide ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

SB3 = "stable-baselines3==2.9.0"
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def peer_python(directory: Path, progress: Callable[[str], None]) -> str:
    """The interpreter of the environment in `directory`, which is made first if there is none."""
    python = directory / "bin" / "python"
    if _has_sb3(python):
        return str(python)
    progress(f"installing {SB3} into {directory}")
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    # torch first and pinned: anything that asks for it would otherwise take the newest, with its CUDA libraries.
    _install(python, "torch")
    # The environments must be the ones we step.
    _install(python, SB3, f"gymnasium[box2d]=={metadata.version('gymnasium')}")
    return str(python)


def _install(python: Path, *packages: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages]
    subprocess.run([*command, "-c", str(CONSTRAINTS)], check=True)


def _has_sb3(python: Path) -> bool:
    if not python.exists():
        return False
    question = "from importlib.metadata import version; print(version('stable-baselines3'))"
    answer = subprocess.run([str(python), "-c", question], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == SB3.partition("==")[2]
