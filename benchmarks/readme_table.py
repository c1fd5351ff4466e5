"""Print the README's table from a result of engine.py: python benchmarks/readme_table.py results.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ENGINES = {
    "gymnasium-sync": "Gymnasium sync",
    "gymnasium-async": "Gymnasium async",
    "envfleet-sync": "envfleet sync",
    "envfleet-process": "envfleet process",
    "envfleet-process-caller": "envfleet process, caller works",
}


def readme_table(result: dict[str, Any]) -> str:
    """Steps a second by workload and engine, with multiples of Gymnasium's serial loop, and the command."""
    lines = [
        f"| steps/s | {' | '.join(ENGINES.values())} |",
        f"|---|{'---:|' * len(ENGINES)}",
        *(_row(workload) for workload in result["throughput"]),
    ]
    machine, created = result["machine"], {sample["engine"]: sample for sample in result["creation"]}
    theirs, ours = created["gymnasium-async"], created["envfleet-process"]
    return "\n".join(
        [
            *lines,
            "",
            f"Creating {_fleet(result['creation_workload'])} with the first reset: "
            f"{_creation(ours)} against {_creation(theirs)} of Gymnasium async.",
            "",
            f"Medians of {result['plan']['repeats']} interleaved turns on {machine['usable_cores']} cores, random "
            "actions, in brackets multiples of Gymnasium sync; measured by `make bench`, every figure in "
            "[benchmarks/results/engine.json](benchmarks/results/engine.json).",
        ]
    )


def _row(workload: dict[str, Any]) -> str:
    medians = {found["engine"]: found["median"] for found in workload["engines"]}
    cells = [f"{medians[name]:,.0f} ({medians[name] / medians['gymnasium-sync']:.2f})" for name in ENGINES]
    return f"| {_fleet(workload['workload'])} | {' | '.join(cells)} |"


def _fleet(workload: dict[str, Any]) -> str:
    return f"{workload['num_envs']} x {workload['env_id']}"


def _creation(found: dict[str, Any]) -> str:
    samples = found["samples"]
    seconds = sorted(sample["seconds"] for sample in samples)[len(samples) // 2]
    memory = sorted(sample["pss_bytes"] for sample in samples)[len(samples) // 2]
    return f"{seconds:.2f} s and {memory / 2**20:,.0f} MB"


if __name__ == "__main__":
    print(readme_table(json.loads(Path(sys.argv[1]).read_text())))
