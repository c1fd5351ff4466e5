"""The script of the kill matrix: two faults in our own worker processes, and the page that is made from a JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import faults  # noqa: E402
from fault_matrix import measuring, tables, verdicts  # noqa: E402
from fault_matrix.contestants import CONTESTANTS  # noqa: E402
from fault_matrix.failing_env import FAIL_AT, FAILING, NUM_ENVS  # noqa: E402

NOTHING_LEFT = {"processes": 0, "shared_files": 0, "held_shared_memory": 0, "seconds": 0.0}


def diary(rows: dict[int, dict[str, str]], **notice: Any) -> list[dict[str, Any]]:
    """The events of a cell that gave these rows, step by step, and told in the first of them what `notice` says."""
    told = {"restarted": [], "words": "", **notice}
    quiet = {"restarted": [], "words": ""}
    first = min(rows)
    answers = [
        {"event": "answer", "at": float(number), "number": number, "rows": row, **(told if number == first else quiet)}
        for number, row in rows.items()
    ]
    return [*answers, {"event": "closing", "at": 99.0}, {"event": "closed", "at": 99.0}]


def same_rows(word: str) -> dict[str, str]:
    return {str(index): word for index in range(NUM_ENVS)}


REFERENCE = verdicts.noticed(diary({FAIL_AT: same_rows("a"), FAIL_AT + 1: same_rows("b")}), 0.0, None, "")


def test_a_partial_run_is_measured_and_leaves_other_cells_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "STEP_SECONDS", 60.0)  # whatever else this machine is busy with
    output = tmp_path / "faults.json"
    output.write_text(json.dumps({"cells": {"sb3": {"kill": {"outcome": "n/a", "reason": "an earlier run"}}}}))
    faults.main(["--only", "envfleet-process-restart", "--faults", "kill", "caller-killed", "--output", str(output)])
    cells = json.loads(output.read_text())["cells"]
    assert cells["sb3"]["kill"]["reason"] == "an earlier run"
    killed = cells["envfleet-process-restart"]["kill"]
    assert (killed["outcome"], killed["named"], killed["lost"]) == ("told", True, 1), killed
    assert killed["neighbours"] == {"equal": NUM_ENVS - 1}
    for facts in cells["envfleet-process-restart"].values():
        assert not any(facts["left"][name] for name in ("processes", "shared_files", "held_shared_memory"))
    page = output.with_suffix(".md").read_text()
    assert "| envfleet process, restart | told after" in page
    assert "n/a: an earlier run" in page


def test_rows_that_differ_without_a_word_are_silently_wrong() -> None:
    odd = {**same_rows("b"), "0": "something else"}
    found = verdicts.noticed(diary({FAIL_AT: same_rows("a"), FAIL_AT + 1: odd}), 0.0, None, "")
    facts = verdicts.compare({**found, "left": NOTHING_LEFT}, REFERENCE)
    assert facts["outcome"] == "silent"
    assert facts["neighbours"] == {"equal": NUM_ENVS - 2, "wrong": 1}
    assert tables.verdict(facts) == "**silent**, **neighbours wrong: 1**"


def test_rows_that_differ_after_a_restart_that_was_told_are_not_wrong() -> None:
    odd = {**same_rows("b"), "0": "something else"}
    events = diary({FAIL_AT: same_rows("a"), FAIL_AT + 1: odd}, restarted=[0, FAILING], words="the worker died")
    facts = verdicts.compare({**verdicts.noticed(events, FAIL_AT - 0.5, None, ""), "left": NOTHING_LEFT}, REFERENCE)
    assert (facts["outcome"], facts["seconds"], facts["lost"], facts["named"]) == ("told", 0.5, 2, False)
    assert facts["neighbours"] == {"equal": NUM_ENVS - 2, "restarted": 1}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (f"Environment {FAILING} (in worker 1) raised", True),
        (f"error from Worker<AsyncVectorEnv>-{FAILING}: RuntimeError", True),
        (f"Cannot proceed, worker {FAILING} dead.", True),
        ("Worker 1 (pid 4444, environments 3..5) is gone", False),
        (f"could not broadcast input array from shape (3,) into shape ({FAILING},)", False),
    ],
)
def test_an_error_names_the_environment_by_its_number(words: str, named: bool) -> None:
    event = {"event": "raised", "at": 1.0, "number": FAIL_AT, "type": "Error", "words": words}
    assert verdicts.noticed([event], 0.0, None, "")["named"] is named


def test_the_committed_page_is_that_of_the_committed_json() -> None:
    found = json.loads(faults.RESULTS.read_text())
    assert faults.RESULTS.with_suffix(".md").read_text() == tables.page(found["cells"], found["machine"])
    assert set(found["cells"]) <= set(CONTESTANTS)
