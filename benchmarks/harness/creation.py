"""How long a fleet takes to make and how much memory it then holds."""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from . import machine
from .engines import ENVFLEET_PROCESS, GYMNASIUM_ASYNC, make_fleet
from .workloads import Workload

SCRIPT = Path(__file__).parents[1] / "create_once.py"
COMPARED = (GYMNASIUM_ASYNC, ENVFLEET_PROCESS)


@dataclass(frozen=True)
class CreationSample:
    """One creation: wall-clock seconds until the first reset has returned, and bytes of PSS gained."""

    seconds: float
    pss_bytes: int


@dataclass(frozen=True)
class CreationResult:
    """One engine's creations with their medians."""

    engine: str
    samples: tuple[CreationSample, ...]
    median_seconds: float
    median_pss_bytes: float


def create_once(engine: str, workload: Workload) -> CreationSample:
    """Make a fleet and reset it, in this process."""
    # The first environment of a kind pays for importing its modules, whatever engine comes next.
    workload.env_fn()().close()
    gc.collect()
    before = machine.pss_bytes([os.getpid()])
    begin = time.perf_counter()
    with closing(make_fleet(engine, workload)) as envs:
        envs.reset(seed=0)
        seconds = time.perf_counter() - begin
        # All processes at once: forked children share pages with this process, whose own PSS shrinks by that.
        after = machine.pss_bytes([os.getpid(), *machine.descendants()])
    return CreationSample(seconds, after - before)


def compare_creation(workload: Workload, repeats: int, progress: Callable[[str], None]) -> tuple[CreationResult, ...]:
    """Create each engine's fleet in turns, each time in a new process.

    A new process because the second fleet of one would find the memory that the first left behind.
    """
    samples: dict[str, list[CreationSample]] = {engine: [] for engine in COMPARED}
    for repeat in range(repeats):
        progress(f"creating {workload.name}: repeat {repeat + 1} of {repeats}")
        for engine in COMPARED if repeat % 2 == 0 else reversed(COMPARED):
            samples[engine].append(_create_elsewhere(engine, workload))
    return tuple(_summed_up(engine, tuple(found)) for engine, found in samples.items())


def _create_elsewhere(engine: str, workload: Workload) -> CreationSample:
    # A script of its own: children of multiprocessing inherit its start method, so a spawned one would make
    # every fleet spawn its workers too, which is not what a user's program gets by default.
    command = [sys.executable, str(SCRIPT), engine, workload.env_id, str(workload.num_envs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return CreationSample(**json.loads(done.stdout))


def _summed_up(engine: str, samples: tuple[CreationSample, ...]) -> CreationResult:
    return CreationResult(
        engine,
        samples,
        statistics.median(sample.seconds for sample in samples),
        statistics.median(sample.pss_bytes for sample in samples),
    )
