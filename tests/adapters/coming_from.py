"""The pages of docs/coming_from, and how their Python blocks and the rows of their tables are run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "coming_from"


def blocks_of(page: str) -> list[Any]:
    """The Python blocks of the page of this name, as parameters of a test."""
    blocks = re.findall(r"```python\n(.*?)```", (FOLDER / f"{page}.md").read_text(), re.DOTALL)
    return [pytest.param(block, id=f"{page}-{number}") for number, block in enumerate(blocks)]


def scripts_of(page: str) -> list[Any]:
    """The Python blocks of the page, and one script more: what the tables say to write instead of another line."""
    lines = lines_of(page)
    rows = [pytest.param(_script_of(page, lines), id=f"{page}-rows")] if lines else []
    return blocks_of(page) + rows


def lines_of(page: str) -> list[str]:
    """Our lines in the tables of a page, and in its row of the first page."""
    theirs_and_ours = []
    for name in ("README", page):
        for row in re.findall(r"^\| (.*) \|$", (FOLDER / f"{name}.md").read_text(), re.MULTILINE):
            cells = [cell.strip() for cell in row.split(" | ")]
            if name == "README" and f"]({page}.md)" in row:
                theirs_and_ours.append((cells[1], cells[2]))
            elif name == page and len(cells) == 2:
                theirs_and_ours.append((cells[0], cells[1]))
    return [line for theirs, ours in theirs_and_ours for line in _lines_in(theirs, ours)]


def _lines_in(theirs: str, ours: str) -> list[str]:
    """The code in our cell that does something; "the same with `envfleet`" is their code with another module."""
    if "the same with `envfleet`" in ours:
        ours = theirs.replace("gymnasium.", "envfleet.").replace('_mode": …}', '_mode": "SAME_STEP"}')
    return [span.replace("…", "id, n") for span in re.findall(r"`([^`]+)`", ours) if _does_something(span)]


def _does_something(span: str) -> bool:
    try:
        tree = ast.parse(span.replace("…", "id, n"))
    except SyntaxError:
        return False
    return any(isinstance(node, (ast.Call, ast.Import, ast.ImportFrom)) for node in ast.walk(tree))


_NAMES = """
import os

os.environ["MINARI_DATASETS_PATH"] = os.getcwd()
id, n, w, m, k, t, seed = "CartPole-v1", 2, 1, 1, 1, 1.0, 0
episodes, dataset_id = 2, "rows/cartpole-v0"
env_fns = [lambda: gymnasium.make(id)] * n
adv, actions, envs = np.arange(4.0), [0] * m, None


def policy(observations):
    return np.zeros(len(observations), np.int64)


def make_one(*_):
    return gymnasium.make(id)


def keep(made):
    # The vector environment of the lines that follow, if it is one.
    global envs
    if hasattr(made, "close"):
        if hasattr(envs, "close"):
            envs.close()
        envs = made
"""


def _script_of(page: str, lines: list[str]) -> str:
    """A program with the imports that the page shows and every line in turn."""
    blocks = "\n".join(block.values[0] for block in blocks_of(page))
    imports = dict.fromkeys(re.findall(r"^(?:from \S+ )?import .*$", blocks, re.MULTILINE))
    named = ["import gymnasium", "import numpy as np", "import envfleet", *imports]
    run = [f"keep({line})" if isinstance(ast.parse(line).body[0], ast.Expr) else line for line in lines]
    body = "\n    ".join([*run, "if hasattr(envs, 'close'):", "    envs.close()"])
    return "\n".join(named) + _NAMES + f'\n\nif __name__ == "__main__":\n    {body}\n'


def run_block(block: str, folder: Path, seconds: float = 100, *, may_warn: bool = False) -> None:
    """Runs a block as a reader would: saved as a script, run by Python; a warning would be seen on stderr.

    Args:
        block: The script.
        folder: Where it is saved and run.
        seconds: How long it may take.
        may_warn: Whether anything may be on stderr: some libraries log there, or have all warnings shown.
    """
    script = folder / "block.py"
    script.write_text(block)
    command = [sys.executable, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert may_warn or not done.stderr
