"""How far a call walks: its call frames and the files they lie in, on each backend.

python benchmarks/walks.py                      all walks on sync, process and native
python benchmarks/walks.py recovery --ray       one walk, Ray too
python benchmarks/walks.py step --names         the calls themselves

The walks, each with eight CartPoles:

step       A step after two others that went well.
reset      A `reset(seed=0)` after such steps.
recovery   What is done about a lost worker. One of two workers is killed, then the fleet is stepped. Counting begins
           when the loss is noticed, with the function that makes the `LostWorker` and those that it ends: all up to the
           engine, which catches it. Counting ends when another worker has taken the place of the lost one and was given
           its part of the step. Every file of envfleet counts of which a function ran meanwhile, utilities too.

Counted are the calls that envfleet's own code makes and receives in the caller's process: Python functions of the
package, and the built-in functions that these call. What environments and workers do is not counted, nor what Python's
profiler does not see: our own compiled functions (five in a step of sync, eight in one of process, one in one of
native). The calls of a recovery depend on how often the caller looks whether the new worker has something to say:
there, the number of functions tells more.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from harness.report import table

import envfleet
from envfleet.backends import BackendName
from envfleet.vector.recovery import LostWorker

HOME = str(Path(envfleet.__file__).parent)
ACTIONS = np.zeros(8, np.int64)
BACKENDS: tuple[BackendName, ...] = ("sync", "process", "native", "ray")
RESTARTS = {"on_failure": "restart", "num_workers": 2}

Calls: TypeAlias = "Counter[tuple[str, str]]"
"""How often each function was called, by place and name."""


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walks", nargs="*", metavar="WALK", help=f"{', '.join(WALKS)}; by default all")
    parser.add_argument("--ray", action="store_true", help="count Ray too, which is started for it")
    parser.add_argument("--names", action="store_true", help="print the calls themselves too")
    options = parser.parse_args()
    if unknown := set(options.walks) - set(WALKS):
        parser.error(f"no such walk: {', '.join(sorted(unknown))}; there are {', '.join(WALKS)}")
    rows = []
    for walk in options.walks or WALKS:
        for backend in BACKENDS if options.ray else BACKENDS[:-1]:
            if walk == "recovery" and backend in ("sync", "native"):  # no workers that could be lost
                continue
            calls = WALKS[walk](backend)
            rows.append([walk, backend, *map(str, counts(calls))])
            if options.names:
                print(walk, backend, *(f"  {n} x {name} ({place})" for (place, name), n in calls.items()), sep="\n")
    print(table(["walk", "backend", "calls", "different functions of ours", "files"], rows))


def counts(calls: Calls) -> tuple[int, int, int]:
    """All calls, the different functions of ours, and their files."""
    files = files_of(calls)
    functions = {call for call in calls if call[0] in files and not call[1].startswith("<")}
    return sum(calls.values()), len(functions), len(files)


def files_of(calls: Calls) -> set[str]:
    """The files of ours in which something was called."""
    return {place for place, _ in calls if place.endswith(".py")}


class TellsPid(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Says in its infos which process it runs in."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's."""
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "pid": os.getpid()}


def fleet(backend: BackendName, wrapper: type[gymnasium.Wrapper[Any, Any, Any, Any]], **vector_kwargs: Any) -> Any:
    """Eight CartPoles."""
    kwargs: dict[str, Any] = {} if backend == "native" else {"wrappers": [wrapper]}
    return envfleet.make_vec("CartPole-v1", len(ACTIONS), backend, vector_kwargs=vector_kwargs, **kwargs)


def calls_of_a_step(backend: BackendName) -> Calls:
    """The calls of one step."""
    with fleet(backend, gymnasium.Wrapper) as envs:
        settle(envs)
        return counted(lambda: envs.step(ACTIONS))


def calls_of_a_reset(backend: BackendName) -> Calls:
    """The calls of one reset."""
    with fleet(backend, gymnasium.Wrapper) as envs:
        settle(envs)
        return counted(lambda: envs.reset(seed=0))


def calls_of_a_recovery(backend: BackendName) -> Calls:
    """The calls from a worker's loss until another goes on with its work."""
    with fleet(backend, TellsPid, **RESTARTS) as envs:
        infos = settle(envs)
        os.kill(int(infos["pid"][0]), signal.SIGKILL)
        calls = counted(lambda: envs.step(ACTIONS), begin=is_noticed, end=is_replaced)
    if not calls:
        raise RuntimeError("No worker was lost: there was nothing to count.")
    return calls


def settle(envs: Any) -> dict[str, Any]:
    """Bring a fleet to where all goes well; returns the infos of its reset."""
    infos: dict[str, Any] = envs.reset(seed=0)[1]
    for _ in range(2):
        envs.step(ACTIONS)
    return infos


def is_noticed(frame: FrameType, event: str) -> bool:
    """Whether somebody notices a loss."""
    return event == "call" and isinstance(frame.f_locals.get("self"), LostWorker)


def is_replaced(frame: FrameType, event: str) -> bool:
    """Whether an engine has replaced a worker, and has given the new one what the lost one had to do."""
    return event == "return" and frame.f_code.co_name == "_replace"


def counted(
    call: Callable[[], object],
    begin: Callable[[FrameType, str], bool] | None = None,
    end: Callable[[FrameType, str], bool] = lambda *_: False,
) -> Calls:
    """The calls in which envfleet's code takes part while ``call`` runs: all, or those from ``begin`` to ``end``."""
    calls: Calls = Counter()
    is_counting = begin is None

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal is_counting
        if place_of(frame) is None:
            return
        if begin is not None and not is_counting and begin(frame, event):
            is_counting = True
            for caller in callers_that_end(frame):
                calls[str(place_of(caller)), caller.f_code.co_name] += 1
        if is_counting and event == "call":
            calls[str(place_of(frame)), frame.f_code.co_name] += 1
        elif is_counting and event == "c_call":
            calls["compiled", getattr(argument, "__qualname__", str(argument))] += 1
        if is_counting and end(frame, event):
            is_counting = False

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


def place_of(frame: FrameType) -> str | None:
    """The file of a function of ours, None for any other's."""
    file = frame.f_code.co_filename
    return str(Path(file).relative_to(HOME)) if file.startswith(HOME) else None


def callers_that_end(frame: FrameType) -> list[FrameType]:
    """Those whose call ends with the exception that is made in this frame: all up to the engine, which catches it."""
    callers = []
    caller = frame.f_back
    while caller is not None and not str(place_of(caller)).endswith("engine.py"):
        callers.append(caller)
        caller = caller.f_back
    return callers


WALKS: dict[str, Callable[[BackendName], Calls]] = {
    "step": calls_of_a_step,
    "reset": calls_of_a_reset,
    "recovery": calls_of_a_recovery,
}

if __name__ == "__main__":
    main()
