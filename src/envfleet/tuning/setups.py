"""The candidates: ways to run an environment that are worth measuring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envfleet.backends import BackendName, RegisteredBackend
from envfleet.plan import StepCost, choose

_PROCESS_START = 0.02
"""The time to start one worker process, in seconds, if nothing is known yet."""


@dataclass(frozen=True)
class Setup:
    """Arguments for ``make_vec``.

    Attributes:
        num_envs: How many environments.
        backend: The name of one.
        vector_kwargs: Further arguments of the vector environment.
    """

    num_envs: int
    backend: BackendName
    vector_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def first_ready(self) -> int | None:
        """How many results ``recv`` waits for; None for a fleet that is stepped as a whole."""
        size: int | None = self.vector_kwargs.get("first_ready")
        return size

    @property
    def workers(self) -> int:
        """The number of processes in which environments run, including the caller's own."""
        workers: int = self.vector_kwargs.get("num_workers", 1)
        return workers

    @property
    def name(self) -> str:
        """The setup in words, without the number of environments."""
        if self.backend != "process":
            return self.backend
        if self.vector_kwargs.get("caller_works"):
            return f"process, {_plural(self.workers - 1, 'worker')} and the caller"
        ready = "" if self.first_ready is None else f", first {self.first_ready} ready"
        return f"process, {_plural(self.workers, 'worker')}{ready}"


@dataclass(frozen=True)
class EnvCost:
    """The times of one environment alone, in seconds.

    Attributes:
        make: The time to make it.
        reset: The time of its first reset.
        step: The time of a step.
    """

    make: float
    reset: float
    step: StepCost

    def waits(self, num_envs: int, cores: int) -> bool:
        """Returns whether ``make_vec`` would give every environment its own worker, because steps mostly wait."""
        plan = choose(num_envs, cores, self.step)
        return plan.backend == "process" and "caller_works" not in plan.vector_kwargs


@dataclass(frozen=True)
class Expectation:
    """The expected times of a setup, in seconds: until it is ready, and for one step or ``recv``."""

    preparation: float
    step: float


def setups(num_envs: int, cores: int, cost: EnvCost, *, first_ready: bool, suitable: Sequence[str] = ()) -> list[Setup]:
    """What to compare, the simplest first; ``suitable`` are backends that "auto" would take without measuring."""
    side_by_side = min(cores, num_envs)
    found = [Setup(num_envs, "sync"), *(Setup(num_envs, RegisteredBackend(name)) for name in suitable)]
    if side_by_side > 1:
        found.append(Setup(num_envs, "process", {"num_workers": side_by_side, "caller_works": True}))
    crews = {1, cores, 2 * cores}
    if cost.waits(num_envs, cores):
        side_by_side = choose(num_envs, cores, cost.step).vector_kwargs["num_workers"]
        crews.add(side_by_side)
    for workers in sorted({min(workers, num_envs) for workers in crews}):
        found.append(Setup(num_envs, "process", {"num_workers": workers}))
    if first_ready:
        batches = sorted({num_envs // 2, num_envs // 4} - {0}, reverse=True)
        found += [Setup(num_envs, "process", {"num_workers": side_by_side, "first_ready": size}) for size in batches]
    return found


def expect(setup: Setup, cores: int, cost: EnvCost) -> Expectation:
    """Returns the expected times of a setup, estimated from those of one environment alone."""
    if setup.backend not in ("sync", "process"):
        return Expectation(0.0, 0.0)  # nothing that was measured on one Python environment says anything about it
    at_once = setup.workers if cost.waits(setup.num_envs, cores) else min(setup.workers, cores)
    in_a_row = math.ceil(setup.num_envs / at_once)
    preparation = in_a_row * (cost.make + cost.reset)
    if setup.backend == "process":
        preparation += setup.workers * _PROCESS_START
    return Expectation(preparation, math.ceil((setup.first_ready or setup.num_envs) / at_once) * cost.step.wall)


def code(env: str, setup: Setup, env_kwargs: Mapping[str, Any]) -> str:
    """Returns Python code that makes the fleet; for a first-ready fleet also the loop that it needs."""
    arguments = [env, str(setup.num_envs), f'backend="{setup.backend}"']
    if setup.vector_kwargs:
        items = ", ".join(f'"{name}": {value!r}' for name, value in setup.vector_kwargs.items())
        arguments.append(f"vector_kwargs={{{items}}}")
    arguments += [f"{name}={_literal(value)}" for name, value in env_kwargs.items()]
    line = f"envs = envfleet.make_vec({', '.join(arguments)})"
    if setup.first_ready is None:
        return line
    return "\n".join(
        [
            line,
            "envs.async_reset(seed=0)",
            "for _ in range(1_000):",
            "    observations, rewards, terminateds, truncateds, infos = envs.recv()",
            f'    envs.send(policy(observations), infos["env_id"])  # your policy, for {setup.first_ready} at a time',
        ]
    )


def name_in_code(env: Any) -> str:
    """Returns the name of the environment in a line of code."""
    if isinstance(env, str):
        return _literal(env)
    if not callable(env):
        return "spec"
    name = getattr(env, "__name__", "")
    return name if name.isidentifier() else "make_env"


def _literal(value: Any) -> str:
    """Returns the value as code, with strings in double quotes."""
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text[0] == "'" and '"' not in text else text


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
