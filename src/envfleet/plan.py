"""Chooses the backend for an environment: a short measurement, then a calculation that fits in one sentence."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import Space

from envfleet.vector.fused_env import AnyEnv, EnvFn
from envfleet.vector.infos import InfoSchema
from envfleet.vector.layout import SpaceLayout

_WARM_UP_STEPS = 5
_MEASURED_STEPS = 200
_MEASURED_SECONDS = 0.05
_FEWEST_STEPS = 2
_MOST_ROUNDS = 4
_SLOWEST_SHARE = 0.7
"""If one step takes more than this share of a round's time, the round is measured again."""

_HAND_OVER = 10e-6
"""What a turn costs, in seconds, in which the caller steps a share and other processes the rest: 3 to 5 µs while all
are awake, and about 40 µs once the others sleep, which they do when the caller's loop computes for a millisecond."""

_PICKLING = 50e-6
"""What it costs in addition if something must be pickled, such as an info that is no plain number."""

_WAKE_UP = 40e-6
"""What passing a turn to a process that sleeps and back costs, in seconds."""

_WORTH_IT = 1.2
_MOSTLY_WAITING = 0.5
_WAITS_A_STEP = 0.5
_MAX_WAITING_WORKERS = 64


@dataclass(frozen=True)
class StepCost:
    """What a step takes on an idle machine. Resets are counted in.

    Attributes:
        wall: Seconds.
        cpu: Seconds of them in which the processor is busy.
        pickled: Whether some of what it takes or returns does not fit into shared memory, so that it must be pickled on
            the way to another process and back.
    """

    wall: float
    cpu: float
    pickled: bool = False


@dataclass(frozen=True)
class Plan:
    """A backend, its arguments, and a sentence that says why it was chosen."""

    backend: str
    sentence: str
    vector_kwargs: dict[str, Any] = field(default_factory=dict)


def measure_step(env_fn: EnvFn) -> StepCost:
    """Makes one environment here, steps it with random actions for 0.05 seconds, and closes it.

    If one step takes longer than all others together, something was probably compiled or read from a disk for the
    first time. Such a round says nothing about later steps, so there is another round.
    """
    with _global_generators_kept():
        env = env_fn()
        try:
            env.reset(seed=0)
            actions = deepcopy(env.action_space)  # the environment's own may be shared with all others
            actions.seed(0)
            *_, info = _random_steps(env, actions, _WARM_UP_STEPS)
            for _ in range(_MOST_ROUNDS):
                cost, slowest_share = _measured_round(env, actions)
                if slowest_share < _SLOWEST_SHARE:
                    break
            return replace(cost, pickled=_is_pickled(env, info))
        finally:
            env.close()


def _is_pickled(env: AnyEnv, info: Any) -> bool:
    loose = [SpaceLayout(space, "").loose_leaves for space in (env.observation_space, env.action_space)]
    return any(loose) or not (isinstance(info, dict) and InfoSchema.fits([type(value) for value in info.values()]))


def _measured_round(env: AnyEnv, actions: Space[Any]) -> tuple[StepCost, float]:
    """Returns the average cost of a step, and the share of the time that the slowest step took."""
    # The whole process's time: an environment may compute in threads of its own.
    wall, cpu, waits = time.perf_counter(), time.process_time(), _times_waited()
    steps, slowest, _ = _random_steps(env, actions, _MEASURED_STEPS)
    wall, cpu, waits = time.perf_counter() - wall, time.process_time() - cpu, _times_waited() - waits
    # Time lost without ever having waited was taken by other programs: it is no property of the environment.
    waiting = waits >= _WAITS_A_STEP * steps
    return StepCost((wall if waiting else min(wall, cpu)) / steps, cpu / steps), slowest / wall if wall else 0.0


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    states = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _times_waited() -> int:
    """Returns how often this thread has given up its core to wait for something."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _random_steps(env: AnyEnv, actions: Space[Any], most: int) -> tuple[int, float, Any]:
    """How many steps were taken, at least two, the seconds of the slowest (and the reset after it), the last info."""
    before, slowest = time.perf_counter(), 0.0
    deadline = before + _MEASURED_SECONDS
    for step in range(1, most + 1):
        _, _, terminated, truncated, info = env.step(actions.sample())
        if terminated or truncated:
            env.reset()
        now = time.perf_counter()
        before, slowest = now, max(slowest, now - before)
        if now > deadline and step >= _FEWEST_STEPS:
            break
    return step, slowest, info


def choose(num_envs: int, cores: int, cost: StepCost) -> Plan:
    """Returns the backend that is expected to take the most steps per second."""
    step = f"a step takes {_microseconds(cost.wall)}"
    if num_envs > 1 and cost.cpu < _MOSTLY_WAITING * cost.wall and num_envs * cost.wall > 2 * _WAKE_UP:
        workers = min(num_envs, _MAX_WAITING_WORKERS)
        return Plan(
            "process",
            f"process, {workers} workers: {step}, most of it spent waiting, so every environment waits for itself.",
            {"num_workers": workers},
        )
    workers = min(cores, num_envs)
    extra = _HAND_OVER + (_PICKLING if cost.pickled else 0.0)
    serial, parallel = num_envs * cost.wall, -(-num_envs // workers) * cost.wall + extra
    sums = f"{step}, so {num_envs} in a row take {_microseconds(serial)}"
    shared = f"{_microseconds(parallel)}{', as part of it must be pickled' * cost.pickled}"
    if workers == 1 or serial < _WORTH_IT * parallel:
        return Plan("sync", f"sync: {sums}, and {_on(workers)} would take {shared}.")
    return Plan(
        "process",
        f"process, {workers} workers including the caller: {sums}, on {_on(workers)} about {shared}.",
        {"num_workers": workers, "caller_works": True},
    )


def _on(workers: int) -> str:
    return f"{workers} core{'s' if workers != 1 else ''}"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"
