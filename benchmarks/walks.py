"""How far a call walks: the call frames of a settled step, and the files they lie in, on each backend.

python benchmarks/walks.py            sync, process and native
python benchmarks/walks.py --ray      Ray too

Counted are the calls that envfleet's own code makes and receives in the caller's process: Python functions of the
package, and the built-in functions that these call. What environments do is not counted, nor what Python's profiler
does not see: our own compiled functions (five in a step of sync, eight in one of process, one in one of native).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium
import numpy as np
from harness.report import table

import envfleet
from envfleet.backends import BackendName

HOME = str(Path(envfleet.__file__).parent)


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray", action="store_true", help="count Ray too, which is started for it")
    parser.add_argument("--names", action="store_true", help="print the calls themselves too")
    options = parser.parse_args()
    rows = []
    chosen: list[BackendName] = ["sync", "process", "native", "ray"]
    for backend in chosen if options.ray else chosen[:-1]:
        calls = calls_of_a_step(backend)
        files = {place for place, _ in calls if place.endswith(".py")}
        functions = {call for call in calls if call[0] in files and not call[1].startswith("<")}
        rows.append([backend, str(sum(calls.values())), str(len(functions)), str(len(files))])
        if options.names:
            print(backend, *(f"  {count} x {name} ({place})" for (place, name), count in calls.items()), sep="\n")
    print(table(["backend", "calls", "different functions of ours", "files"], rows))


def calls_of_a_step(backend: BackendName) -> Counter[tuple[str, str]]:
    """The calls of one step of eight CartPoles, by place and name."""
    kwargs: dict[str, Any] = {} if backend == "native" else {"wrappers": [gymnasium.Wrapper]}
    with envfleet.make_vec("CartPole-v1", 8, backend, **kwargs) as envs:
        envs.reset(seed=0)
        actions = np.zeros(8, np.int64)
        for _ in range(2):
            envs.step(actions)
        return counted(lambda: envs.step(actions))


def counted(call: Callable[[], object]) -> Counter[tuple[str, str]]:
    """The calls in which envfleet's code takes part while ``call`` runs."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if not file.startswith(HOME):
            return
        if event == "call":
            calls[str(Path(file).relative_to(HOME)), frame.f_code.co_name] += 1
        elif event == "c_call":
            calls["compiled", getattr(argument, "__qualname__", str(argument))] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


if __name__ == "__main__":
    main()
