"""How the tests themselves are run: each file in a process of its own, which may crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

CONFTEST = """
import side_by_side

def pytest_addoption(parser):
    side_by_side.add_options(parser)

def pytest_configure(config):
    config.pluginmanager.register(side_by_side.SideBySide(2))
"""

CRASHES = """
import os

def test_goes_well():
    pass

def test_ends_its_process():
    os._exit(3)

def test_comes_after_it():
    import sys
    assert "test_others" not in sys.modules
"""

CANNOT_BEGIN = """
import os
import pytest

@pytest.mark.parametrize("number", [os.getpid()])
def test_has_another_name_in_every_process(number):
    pass
"""


def test_a_crash_is_one_failure_and_the_rest_is_run(tmp_path: Path) -> None:
    files = {"conftest": CONFTEST, "test_crashes": CRASHES, "test_others": CANNOT_BEGIN}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--cpu-seconds", "1", "--rootdir", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=100, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout
    assert "FAILED test_crashes.py::test_ends_its_process" in done.stdout
    assert "The process in which it ran ended with exit code 3." in done.stdout
    assert "FAILED test_others.py::test_has_another_name_in_every_process" in done.stdout
    assert "CPU seconds" in done.stdout
