"""TorchRL's ParallelEnv. Its limit for a step is BATCHED_PIPE_TIMEOUT, its check for NaN a transform.

Its processes come from a fork server that has imported it already: as with `spawn`, its default, they inherit nothing
from the caller, and six of them do not take a minute to start.
"""

from __future__ import annotations

import multiprocessing
from functools import partial
from typing import Any, final

import torch
from torchrl.envs import FiniteTensorDictCheck, GymWrapper, ParallelEnv, TransformedEnv

from fault_matrix.failing_env import NUM_ENVS, FailingEnv, Plan
from fault_matrix.subject import SEED, Answer, Setup, Subject, rows


@final
class TorchRLParallel(Subject):
    """One process per environment, tensors in shared memory."""

    def __init__(self, parallel: Any, envs: Any) -> None:
        self._parallel, self._envs = parallel, envs
        self._data: Any = None

    def reset(self) -> None:
        """Reset all environments."""
        self._envs.set_seed(SEED)
        self._data = self._envs.reset()

    def step(self) -> Answer:
        """Step all environments."""
        self._data["action"] = torch.zeros(NUM_ENVS, dtype=torch.int64)
        stepped, self._data = self._envs.step_and_maybe_reset(self._data)
        following = stepped["next"]
        return Answer(rows(following["observation"].numpy(), following["reward"].numpy()[:, 0]))

    def limit_steps(self, seconds: float) -> None:
        """What the environment variable BATCHED_PIPE_TIMEOUT sets, which would also be the limit for the start."""
        self._parallel.BATCHED_PIPE_TIMEOUT = seconds

    def close(self) -> None:
        """Close it."""
        self._envs.close()


def _wrapped(plan: Plan) -> Any:
    return GymWrapper(FailingEnv(plan), categorical_action_encoding=True)


def make(setup: Setup) -> Subject:
    """Make one."""
    multiprocessing.set_forkserver_preload([__name__])
    env_fns = [partial(_wrapped, setup.plan(index)) for index in range(NUM_ENVS)]
    parallel = ParallelEnv(NUM_ENVS, env_fns, mp_start_method="forkserver")
    envs = TransformedEnv(parallel, FiniteTensorDictCheck()) if setup.checks_nan else parallel
    return TorchRLParallel(parallel, envs)
