"""Ways to make process fleets, and to look at their workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from processes import still_running

from envfleet.errors import WorkerDiedError
from envfleet.testing.envs import EnvFn, trouble_fns
from envfleet.vector import AsyncVectorEnv

NUM_ENVS = 5
EVERY_START_METHOD = pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
# Generous for a loaded machine, short against the hang it stands for.
SOON = 10.0


@contextmanager
def process_fleet(
    env_fns: Sequence[EnvFn] | None = None, context: str = "fork", num_workers: int = 2, **kwargs: Any
) -> Iterator[AsyncVectorEnv]:
    """Make a fleet of processes (default: environments that obey commands) and close it whatever happens."""
    fns = trouble_fns(NUM_ENVS) if env_fns is None else env_fns
    envs = AsyncVectorEnv(fns, context=context, num_workers=num_workers, **kwargs)
    try:
        yield envs
    finally:
        envs.close()


def worker_of(envs: AsyncVectorEnv, env_index: int) -> tuple[int, tuple[int, ...]]:
    """Return the process an environment runs in, and all environments that run there."""
    pids = envs.call("process_id")
    return pids[env_index], tuple(i for i, pid in enumerate(pids) if pid == pids[env_index])


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Assert that the block takes no longer than this."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def assert_died(operation: Callable[[], Any], env_indices: tuple[int, ...], cause: str) -> None:
    """Assert that an operation soon raises a WorkerDiedError that names the environments and the cause."""
    with within(SOON), pytest.raises(WorkerDiedError, match=cause) as caught:
        operation()
    assert caught.value.env_indices == env_indices
    assert isinstance(caught.value.worker, int)


def assert_gone(pids: Iterable[int]) -> None:
    """Assert that these processes end soon; one that only waits to be reaped has ended."""
    running = still_running(pids, SOON)
    assert not running, f"still running: {running}"
