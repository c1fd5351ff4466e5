"""What does a large array that all environments read cost in memory and in time to start?

python benchmarks/large_data.py                                          a table, one minute
python benchmarks/large_data.py --json benchmarks/results/large_data.json
                                                                         and the table in docs/large_data.md
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from envfleet import AsyncVectorEnv

ENVS, WORKERS, STEPS = 8, 4, 2_000
ROWS, COLUMNS = 500_000, 128  # 256 MB of float32
WINDOW = 64

PAGE = Path(__file__).parents[1] / "docs" / "large_data.md"
BEGIN, END = "<!-- large data: begin -->", "<!-- large data: end -->"

Array = npt.NDArray[np.float32]


class Market(gymnasium.Env[Array, Any]):
    """Shows a window of a long table, and moves on: what it needs of the table is a getter's matter."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (COLUMNS,), np.float32)

    def __init__(self, get: Any) -> None:
        self._table = get()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """Starts anywhere in the table."""
        super().reset(seed=seed, options=options)
        self._row = int(self.np_random.integers(ROWS - WINDOW))
        return self._table[self._row], {}

    def step(self, _action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Jumps to another place of the table, so that in the end much of it has been read."""
        self._row = int(self.np_random.integers(ROWS - WINDOW))
        seen = np.mean(self._table[self._row : self._row + WINDOW], axis=0)
        return seen, 0.0, False, False, {}


def loaded(path: str) -> Array:
    """A copy of its own."""
    array: Array = np.load(path)
    return array


@functools.cache
def loaded_once(path: str) -> Array:
    """One copy a process."""
    return loaded(path)


def mapped(path: str) -> Array:
    """The file itself, of which the system keeps one copy for all processes."""
    array: Array = np.load(path, mmap_mode="r")
    return array


@dataclass(frozen=True)
class Cost:
    """What one way of getting at the table costs, in MB a worker and in seconds.

    Attributes:
        way: Which.
        context: How workers start.
        own: What a worker alone has in memory (USS).
        share: The same and its share of what it has together with others (PSS).
        start: Until the first reset is done.
        steps: A second, of the fleet.
    """

    way: str
    context: str
    own: float
    share: float
    start: float
    steps: float


def cost(way: str, context: str, get: Any) -> Cost:
    """Measures one way in a fleet of its own."""
    begun = time.perf_counter()
    with AsyncVectorEnv([functools.partial(Market, get)] * ENVS, num_workers=WORKERS, context=context) as envs:
        envs.reset(seed=1)
        start = time.perf_counter() - begun
        actions = np.zeros(ENVS, np.int64)
        begun = time.perf_counter()
        for _ in range(STEPS):
            envs.step(actions)
        seconds = time.perf_counter() - begun
        kilobytes = [memory(process.pid) for process in envs.processes if process.pid is not None]
    own, share = (sum(column) / len(kilobytes) / 1024 for column in zip(*kilobytes, strict=True))
    return Cost(way, context, own, share, start, ENVS * STEPS / seconds)


def memory(pid: int) -> tuple[int, int]:
    """USS and PSS of a process in kilobytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    values = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    return values["Private_Clean"] + values["Private_Dirty"], values["Pss"]


def before_a_fork(path: str) -> Any:
    """The table is loaded by the caller; workers that are forked have it without a copy."""
    return functools.partial(_constant, loaded(path))


def before_a_fork_as_a_list(path: str) -> Any:
    """The same in half a million Python objects, each with a reference count that readers write."""
    return functools.partial(_constant, list(loaded(path)))


def in_each_environment(path: str) -> Any:
    """Every environment loads the table."""
    return functools.partial(loaded, path)


def once_a_worker(path: str) -> Any:
    """Every worker loads the table, for all its environments."""
    return functools.partial(loaded_once, path)


def as_a_mapped_file(path: str) -> Any:
    """Every environment maps the file."""
    return functools.partial(mapped, path)


def _constant(value: Any) -> Any:
    return value


WAYS = (
    (in_each_environment, "fork"),
    (once_a_worker, "fork"),
    (before_a_fork, "fork"),
    (before_a_fork_as_a_list, "fork"),
    (before_a_fork, "forkserver"),  # by pickle, then
    (as_a_mapped_file, "fork"),
    (as_a_mapped_file, "forkserver"),
    (as_a_mapped_file, "spawn"),
)


def measured() -> list[Cost]:
    """Every way; each in a program of its own, so that none inherits what another has loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "table.npy"))
        np.save(path, np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32))
        costs = []
        for number in range(len(WAYS)):
            command = [sys.executable, __file__, "--one", str(number), path]
            said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            costs.append(Cost(**json.loads(said)))
            print(costs[-1], flush=True)
        return costs


def main() -> None:
    """Measure, print a table, and write down what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--one", nargs=2, metavar=("NUMBER", "PATH"), help="measure one way, for this program itself")
    arguments = parser.parse_args()
    if arguments.one is not None:
        way, context = WAYS[int(arguments.one[0])]
        found = cost(way.__name__.replace("_", " "), context, way(arguments.one[1]))
        print(json.dumps(asdict(found)))
        return
    to = arguments.json
    costs = measured()
    print(as_table(costs))
    if to is not None:
        sizes = {"environments": ENVS, "workers": WORKERS, "table_megabytes": ROWS * COLUMNS * 4 / 2**20}
        to.write_text(json.dumps({**sizes, "costs": [asdict(each) for each in costs]}, indent=1) + "\n")
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{as_table(costs)}\n{END}{rest.partition(END)[2]}")


def as_table(costs: list[Cost]) -> str:
    """What docs/large_data.md shows."""
    lines = ["| the table is loaded | workers start by | MB a worker, own | with its share | start in s | steps/s |"]
    lines += ["|---|---|---:|---:|---:|---:|"]
    lines += [
        f"| {each.way} | {each.context} | {each.own:.0f} | {each.share:.0f} | {each.start:.2f} | {each.steps:,.0f} |"
        for each in costs
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
