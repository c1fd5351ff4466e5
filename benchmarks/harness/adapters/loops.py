"""A plain loop on every core at once, for nobody: what the machine gives where nothing has to be brought together."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any, final

import numpy as np

from harness.fleet import Fleet
from harness.workloads import Workload, batched_actions

SECONDS = 0.06
"""A call: long against a step, as those who end theirs first wait for the others then."""


@final
class Loops(Fleet):
    """As many processes as cores, each with its share of the environments, which it steps one after another."""

    def __init__(self, workload: Workload) -> None:
        env = workload.env_fn()()
        super().__init__(workload.num_envs, env.observation_space, env.action_space)
        env.close()
        cores = sorted(os.sched_getaffinity(0))[: workload.num_envs]
        self._lines: list[Connection] = []
        self._processes = []
        for core, share in zip(cores, np.array_split(np.arange(workload.num_envs), len(cores)), strict=True):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=_loop, args=(workload, len(share), core, theirs), daemon=True)
            process.start()
            self._lines.append(ours)
            self._processes.append(process)

    def reset(self) -> Any:
        """Wait until all environments are made and reset."""
        return [line.recv() for line in self._lines]

    def step(self, actions: Any) -> tuple[Any, int]:  # noqa: ARG002  each process has its own
        """Let all of them loop for a while."""
        end = time.monotonic() + SECONDS
        for line in self._lines:
            line.send(end)
        return None, sum(line.recv() for line in self._lines)

    def close(self) -> None:
        """End the processes."""
        for line, process in zip(self._lines, self._processes, strict=True):
            line.send(None)
            process.join()
            line.close()


def _loop(workload: Workload, share: int, core: int, line: Connection) -> None:
    os.sched_setaffinity(0, {core})
    envs = [workload.env_fn()() for _ in range(share)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    batches = batched_actions(envs[0].action_space, share)
    steps = itertools.cycle([each for batch in batches for each in zip(envs, list(batch), strict=True)])
    line.send(share)
    # Not until the line ends: the other processes have inherited its other end.
    while (end := line.recv()) is not None:
        line.send(_step_until(end, steps))


def _step_until(end: float, steps: Iterator[tuple[Any, Any]]) -> int:
    """How many steps there were. The clock is looked at after each, or one process would wait for the other."""
    for number, (env, action) in enumerate(steps, 1):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
        if time.monotonic() >= end:
            return number
    raise AssertionError("it goes round and round")


def make(workload: Workload, options: Mapping[str, Any]) -> Fleet:  # noqa: ARG001  there is nothing to choose
    """Start the processes."""
    return Loops(workload)
