"""One engine in a process of its own: makes its fleet, then takes a turn whenever it is told to.

Run by the Python that has the engine, with a request as JSON; answers with a JSON a line. Its first line says what it
cost to make the fleet; each line that it reads, `{"seconds": 0.5}`, is answered with the calls and steps made.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from typing import Any, TextIO, final

from harness import machine
from harness.fleet import Fleet
from harness.protocol import Ready, Turn
from harness.workloads import Workload, batched_actions

MOST_MIXING_SECONDS = 5.0
LEAD_IN = 0.2
VERSIONED = (
    "envfleet",
    "gymnasium",
    "numpy",
    "torch",
    "mujoco",
    "ale-py",
    "ray",
    "stable-baselines3",
    "tianshou",
    "torchrl",
    "pufferlib-core",
    "envpool",
    "gymnax",
    "jax",
)


def main() -> None:
    """Answer until the input ends."""
    answers = _own_answers()
    request = json.loads(sys.argv[1])
    workload = Workload(**request["workload"])
    adapter = importlib.import_module(f"harness.adapters.{request['adapter']}")
    if request["makes_gymnasiums"]:
        # The first environment of a kind pays for importing its modules, whatever engine comes next.
        workload.env_fn()().close()
    gc.collect()
    before = machine.pss_bytes([os.getpid()])
    begin = time.perf_counter()
    with closing(adapter.make(workload, request["options"])) as fleet:
        observations = fleet.reset()
        seconds = time.perf_counter() - begin
        # All processes at once: forked children share pages with this process, whose own PSS shrinks by that.
        processes = machine.descendants()
        held = machine.pss_bytes([os.getpid(), *processes]) - before
        runner = Runner(fleet, workload, observations)
        runner.mix(workload.mixing_rounds if request["mix"] else 0)
        ready = Ready(seconds, held, len(processes), machine.versions(VERSIONED))
        _say(answers, asdict(ready))
        for line in sys.stdin:
            _say(answers, asdict(runner.turn(**json.loads(line))))


def _own_answers() -> TextIO:
    """Our way out, which nothing that libraries print can get into: they get the standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


@final
class Stopwatch:
    """A policy, and how long it has been at work in all."""

    def __init__(self, choose: Callable[[Any], Any]) -> None:
        self._choose = choose
        self.seconds = 0.0

    def __call__(self, observations: Any) -> Any:
        """Choose actions."""
        begin = time.perf_counter()
        actions = self._choose(observations)
        self.seconds += time.perf_counter() - begin
        return actions


@final
class Runner:
    """A fleet with its actions, between turns and in them."""

    def __init__(self, fleet: Fleet, workload: Workload, observations: Any) -> None:
        self._fleet = fleet
        self._observations = observations
        self._policy = Stopwatch(_policy(fleet)) if workload.policy else None
        self._choose = self._policy or _fixed(fleet)
        self._rested: tuple[float, float] | None = None

    def mix(self, rounds: int) -> None:
        """Step until young and old episodes are mixed, or that takes too long."""
        end = time.perf_counter() + MOST_MIXING_SECONDS
        for _ in range(rounds):
            self._run(0.0)
            if time.perf_counter() > end:
                return

    def turn(self, seconds: float) -> Turn:
        """Step for so long, after a lead-in that does not count."""
        idle_cpu, idle = self._wake()
        self._run(seconds * LEAD_IN)
        chosen_before = self._choosing_seconds()
        calls, steps, elapsed = self._run(seconds)
        choosing = self._choosing_seconds() - chosen_before
        self._rested = machine.cpu_seconds([os.getpid(), *machine.descendants()]), time.perf_counter()
        return Turn(calls, steps, elapsed, idle_cpu, idle, choosing)

    def _choosing_seconds(self) -> float:
        return self._policy.seconds if self._policy is not None else 0.0

    def _wake(self) -> tuple[float, float]:
        if self._rested is None:
            return 0.0, 0.0
        cpu, clock = self._rested
        used = machine.cpu_seconds([os.getpid(), *machine.descendants()]) - cpu
        return used, time.perf_counter() - clock

    def _run(self, seconds: float) -> tuple[int, int, float]:
        """Step for so many seconds, at least once."""
        step, choose, observations = self._fleet.step, self._choose, self._observations
        clock, calls, steps = time.perf_counter, 0, 0
        begin = clock()
        while True:
            observations, counted = step(choose(observations))
            calls += 1
            steps += counted
            elapsed = clock() - begin
            if elapsed >= seconds:
                self._observations = observations
                return calls, steps, elapsed


def _fixed(fleet: Fleet) -> Callable[[Any], Any]:
    actions: Iterator[Any] = itertools.cycle(fleet.batch(batched_actions(fleet.action_space, fleet.width)))
    return lambda _: next(actions)


def _policy(fleet: Fleet) -> Callable[[Any], Any]:
    from harness.policy import make_policy  # torch, which only these turns need

    return make_policy(fleet.observation_space, fleet.action_space)


if __name__ == "__main__":
    main()
