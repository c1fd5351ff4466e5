"""How much faster is an environment written in Python when numba compiles it?

python benchmarks/own_environment.py              the pond of examples/own_environment.py, 1024 times, a few seconds
python benchmarks/own_environment.py --publish    into benchmarks/results, and the figure into README and docs
python benchmarks/own_environment.py --help       the options of bench.py
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import bench
from harness.pages import with_section
from harness.tables import number

ROOT = Path(__file__).resolve().parents[1]
NAME = "own_environment"
PUBLISHED = ROOT / "benchmarks" / "results" / f"{NAME}.json"
PAGES = (ROOT / "README.md", ROOT / "docs" / "compile_an_environment.md")
SECTION = "own environment"
NATIVE, SYNC = "envfleet-native", "gymnasium-sync"
ENGINES = ("bare", SYNC, "envfleet-sync", "envfleet-process", NATIVE)


def main() -> None:
    """Measure the example as bench.py measures everything; what is said on the command line comes last and counts."""
    publish = "--publish" in sys.argv
    folder = PUBLISHED.parent if publish else ROOT / "build" / "bench"
    given = [word for word in sys.argv[1:] if word != "--publish"]
    files = ["--output", str(folder), "--name", NAME]
    sys.argv[1:] = ["--workloads", "Pond-v0:1024", "--sections", "throughput", *files, "--engines", *ENGINES, *given]
    bench.main()
    if publish:
        result = json.loads(PUBLISHED.read_text())
        for page in PAGES:
            page.write_text(with_section(page.read_text(), SECTION, figure(result, page)))


def figure(result: dict[str, Any], page: Path) -> str:
    """What a page says about a result."""
    medians = {found["engine"]: found["median"] for found in result["throughput"][0]["engines"]}
    native, sync, cores = medians[NATIVE], medians[SYNC], result["machine"]["usable_cores"]
    tables = os.path.relpath(PUBLISHED.with_suffix(".md"), page.parent)
    return (
        f"On {cores} cores 1024 of the example's ponds make {number(native)} steps/s compiled, and {number(sync)}\n"
        f"under Gymnasium's `SyncVectorEnv`: {native / sync:.0f} times as many ([figures]({tables}))."
    )


if __name__ == "__main__":
    main()
