"""What is asked of environments of other libraries: the same trajectories wherever they run, and a clean end."""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection
from typing import Any

import numpy as np

from envfleet import make_vec
from envfleet.testing import assert_same

STEPS = 40
NUM_ENVS = 4
START_METHODS = ("fork", "spawn", "forkserver")


def trajectory(envs: Any) -> list[Any]:
    """Everything that a fleet says in forty steps from a seed."""
    envs.action_space.seed(7)
    return [envs.reset(seed=7), *(envs.step(envs.action_space.sample()) for _ in range(STEPS))]


def check_guest(env_id: str, context: str, unseeded: Collection[str] = ()) -> None:
    """Runs an environment in worker processes of a start method and in this thread, and compares all that they say.

    Args:
        env_id: Which one.
        context: The start method.
        unseeded: Keys of infos that no seed determines.
    """
    workers: dict[str, Any] = {"context": context, "num_workers": 2}
    with make_vec(env_id, NUM_ENVS, "sync") as here:
        wanted = trajectory(here)
    envs = make_vec(env_id, NUM_ENVS, "process", workers)
    try:
        found = trajectory(envs)
        processes = list(envs.processes)
    finally:
        envs.close()
    for step, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert_same(without(unseeded, one), without(unseeded, other), f"{env_id} after {step} steps")
    assert [process.exitcode for process in processes] == [0, 0]
    assert not multiprocessing.active_children()
    moved = [not np.array_equal(a, b) for a, b in zip(leaves(wanted[0][0]), leaves(wanted[-1][0]), strict=True)]
    assert any(moved), f"{env_id} stood still: nothing was compared"


def without(keys: Collection[str], result: Any) -> Any:
    """A result without these infos."""
    *rest, infos = result
    return *rest, {key: value for key, value in infos.items() if key.removeprefix("_") not in keys}


def leaves(observation: Any) -> list[Any]:
    """The arrays of an observation."""
    if isinstance(observation, dict):
        return [leaf for part in observation.values() for leaf in leaves(part)]
    return [observation] if isinstance(observation, np.ndarray) else []
