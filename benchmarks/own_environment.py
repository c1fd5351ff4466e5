"""How much faster is an environment written in Python when numba compiles it?

python benchmarks/own_environment.py              the pond of examples/own_environment.py, 1024 times, half a minute
python benchmarks/own_environment.py --help       the options of native.py
"""

from __future__ import annotations

import runpy
from pathlib import Path

import gymnasium
import native
from harness.workloads import Workload

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_environment.py"


def main() -> None:
    """Measure the example as native.py measures Gymnasium's environments."""
    pond = runpy.run_path(str(EXAMPLE))["Pond"]
    gymnasium.register("Pond-v0", entry_point=pond, max_episode_steps=pond.description.max_episode_steps)
    native.WORKLOADS[:] = [Workload.parse("Pond-v0:1024")]
    native.main()


if __name__ == "__main__":
    main()
