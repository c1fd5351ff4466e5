"""What the tests of backends share: start methods, the proof that nothing stays behind, environments that get stuck."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import small_ray
from native_gate import Gate
from own_environments import LIBRARIES, build
from processes import still_running
from selection import left_to_test_all

# Python's own helpers: they serve the whole life of this process and end with it.
HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


@pytest.fixture(params=["fork", "spawn", pytest.param("forkserver", marks=left_to_test_all())])
def start_method(request: pytest.FixtureRequest) -> str:
    """Ways to start a worker process: fork inherits everything, spawn nothing. Tests of starts and ends have all."""
    return str(request.param)


def descendants() -> set[psutil.Process]:
    """Return all processes started by this one, and by those, but Python's own helpers."""
    this = psutil.Process()
    helpers = {child for child in this.children() if any(name in _command(child) for name in HELPERS)}
    return set(this.children(recursive=True)) - helpers


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture
def nothing_left_behind() -> Iterator[None]:
    """Assert that a test leaves no process that was not there before."""
    before = descendants()
    yield
    running = still_running((process.pid for process in descendants() - before), 5)
    assert not running, f"left behind: {running}"


@pytest.fixture
def stand_in_for_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have RayVectorEnv find small_ray.py where it looks for Ray."""
    monkeypatch.setitem(sys.modules, "ray", small_ray)


@pytest.fixture(scope="session")
def gate_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled environment of a Gate."""
    return build(LIBRARIES / "gate.c", tmp_path_factory.mktemp("gate") / "gate.so")


@pytest.fixture
def gate(gate_library: Path) -> Iterator[Gate]:
    """Four environments, reset, on two threads."""
    gate = Gate(gate_library)
    gate.envs.reset(seed=0)
    yield gate
    gate.open()
    gate.envs.close()
