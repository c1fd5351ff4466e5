"""How far a step and a recovery walk: what was made short stays short. See benchmarks/walks.py for what is counted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from threaded import a_thread

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import walks

MOST_FILES = 8


def test_a_recovery_lies_in_few_files() -> None:
    files = walks.files_of(walks.calls_of_a_recovery("process"))
    assert len(files) <= MOST_FILES, sorted(files)
    assert {"vector/recovery.py", "vector/replay.py", "vector/process/engine.py"} <= files


def test_a_recovery_of_a_program_with_threads_lies_in_few_files() -> None:
    with a_thread():
        files = walks.files_of(walks.calls_of_a_recovery("process"))
    assert len(files) <= MOST_FILES, sorted(files)


@pytest.mark.parametrize(("backend", "most"), [("sync", 5), ("process", 14), ("native", 1)])
def test_a_settled_step_makes_few_calls(backend: str, most: int) -> None:
    # On a busy machine the caller may have to look after its workers: not in all of several tries.
    assert any(walks.counts(walks.calls_of_a_step(backend))[0] <= most for _ in range(10))


def test_a_reset_is_counted_from_end_to_end() -> None:
    calls = walks.calls_of_a_reset("sync")
    assert calls["vector/vector_env.py", "reset"] == 1
    assert calls["vector/shard.py", "_reset_environment"] == len(walks.ACTIONS)
