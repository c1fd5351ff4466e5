"""How much faster is an environment written in Python when numba compiles it?

python benchmarks/own_environment.py              the pond of examples/own_environment.py, 1024 times, a few seconds
python benchmarks/own_environment.py --help       the options of bench.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import bench

RESULTS = Path(__file__).resolve().parents[1] / "build" / "bench"
ENGINES = ("bare", "gymnasium-sync", "envfleet-sync", "envfleet-process", "envfleet-native")


def main() -> None:
    """Measure the example as bench.py measures everything; what is said on the command line comes last and counts."""
    files = ["--output", str(RESULTS), "--name", "own_environment"]
    sys.argv[1:1] = ["--workloads", "Pond-v0:1024", "--sections", "throughput", *files, "--engines", *ENGINES]
    bench.main()


if __name__ == "__main__":
    main()
