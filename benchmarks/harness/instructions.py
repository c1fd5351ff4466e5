"""How many instructions our hot paths take, counted by callgrind: the same on an idle machine and on a busy one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from .installation import telling_line

SCRIPT = Path(__file__).parents[1] / "hot_paths.py"
REQUESTS = Path(__file__).with_name("callgrind_requests.c")
HOT_PATHS = {
    "native-step": "step of 8 native CartPoles",
    "sync-step": "step of 8 CartPoles in the sync shard",
    "batch-copy": "8 Dict observations with an image, in and out",
}
CALLS = 100
MOST_SECONDS = 600.0


class NoCallgrindError(RuntimeError):
    """Callgrind cannot be used here; says what to install."""


def count_instructions(python: str, directory: Path) -> dict[str, float]:
    """Instructions a call of each hot path, with the envfleet that `python` has. Writes into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    command = [
        *_valgrind(),
        f"--callgrind-out-file={directory / 'counts'}",
        python,
        str(SCRIPT),
        str(_requests_library(directory)),
        str(CALLS),
        *HOT_PATHS,
    ]
    # A hash seed of its own for each process would lay dicts out differently.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"the hot paths failed under valgrind: {telling_line(done.stderr)}")
    found = {name: total for path in directory.glob("counts.*") for name, total in _read_dump(path)}
    return {name: found[name] / CALLS for name in HOT_PATHS}


def _valgrind() -> list[str]:
    if shutil.which("valgrind") is None:
        raise NoCallgrindError("counting instructions needs valgrind: apt-get install valgrind")
    return ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"]


def _requests_library(directory: Path) -> Path:
    library = directory / "callgrind_requests.so"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-shared", "-fPIC", "-O1", str(REQUESTS), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCallgrindError(f"callgrind's header could not be compiled: {telling_line(done.stderr)}")
    return library


def _read_dump(path: Path) -> list[tuple[str, int]]:
    """The name given to a dump and the instructions in it; nothing for the one written at the end."""
    text = path.read_text()
    name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
    total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
    return [(name.group(1).strip(), int(total.group(1)))] if name and total else []
