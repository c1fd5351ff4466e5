"""An environment that computes in a pool of threads, as those do that use torch, JAX or OpenMP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from soaking.faulty import FaultyEnv

_pools: list[ThreadPoolExecutor] = []


def compute() -> int:
    """Computes in the pool of this process, whose thread stays: a copy without it would wait for it for ever."""
    if not _pools:
        _pools.append(ThreadPoolExecutor(1))
    return _pools[0].submit(sum, (1, 2)).result()


def end_pool() -> None:
    """This process has no such thread any longer."""
    while _pools:
        _pools.pop().shutdown()


class PooledEnv(FaultyEnv):
    """Needs the pool for everything."""

    def reset(self, **kwargs: Any) -> Any:
        compute()
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        compute()
        return super().step(action)
