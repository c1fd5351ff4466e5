"""What every topic of the contract stands on: the factory an implementer writes, and fleets that always close."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from envfleet.testing.requirements import pytest

# isort: split
from envfleet.testing.envs import EnvFn

# Gymnasium's VectorEnv does not declare the asynchronous half of the contract, so a type checker cannot help here.
Fleet = Any


class ContractBase:
    """Subclass one or more contracts and write `make`; pytest does the rest.

    Attributes:
        num_envs: environments in most fleets of the suite; odd, so that shards of two workers differ in size.
        max_examples: how many random cases each property test tries.
    """

    num_envs: int = 5
    max_examples: int = 20

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> Fleet:
        """Return a vector env of these environments.

        Args:
            env_fns: one callable an environment.
            kwargs: any of `copy`, `observation_mode` and `autoreset_mode`, as Gymnasium's constructors take them, and
                `batch_size` in the contract about it.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make(self, env_fns, **kwargs)")

    @contextmanager
    def fleet(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> Iterator[Fleet]:
        """Make a vector env and close it whatever happens."""
        envs = self.make(env_fns, **kwargs)
        try:
            yield envs
        finally:
            envs.close()

    def zeros(self) -> npt.NDArray[np.int64]:
        """Return the harmless action 0 for every environment: int64[num_envs]."""
        return np.zeros(self.num_envs, np.int64)

    def order(self, orders: dict[int, int]) -> npt.NDArray[np.int64]:
        """Return the action 0 for every environment but those with orders: int64[num_envs]."""
        actions = self.zeros()
        for index, action in orders.items():
            actions[index] = action
        return actions


def mask_of(num_envs: int, *indices: int) -> npt.NDArray[np.bool_]:
    """Return a reset mask, True at the indices: bool[num_envs]."""
    mask = np.zeros(num_envs, np.bool_)
    mask[list(indices)] = True
    return mask


__all__ = ["ContractBase", "EnvFn", "Fleet", "mask_of", "pytest"]
