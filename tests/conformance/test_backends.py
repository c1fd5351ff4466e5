"""The one contract, over every backend.

Sync and two forked workers run all of it. How environments are shared out or how workers start cannot change most of
the rules, so the other variants run the topics in which it could, and the rest in `make test-all`. Start methods are
slow: test_process_trajectories.py and its neighbours run what depends on them, tests/faults/test_raise.py what goes
wrong in spawned workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from selection import left_to_test_all

from envfleet.testing import (
    ActionsContract,
    AutoresetContract,
    CallsContract,
    FailuresContract,
    FirstReadyContract,
    InfosContract,
    LifecycleContract,
    ObservationModesContract,
    ObservationsContract,
    OptionsContract,
    OutputsContract,
    RealEnvironmentsContract,
    SeedingContract,
    SpacesContract,
    TrajectoriesContract,
    VectorEnvContract,
    WaitingContract,
)
from envfleet.testing.envs import EnvFn
from envfleet.vector import AsyncVectorEnv, SyncVectorEnv, pages


class TestSync(VectorEnvContract, FirstReadyContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> SyncVectorEnv:
        return SyncVectorEnv(env_fns, **kwargs)


class TestProcess(VectorEnvContract, FirstReadyContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=2, **kwargs)


class SharesContract(TrajectoriesContract, AutoresetContract, WaitingContract):
    """The topics in which it could matter how the environments are shared out."""

    max_examples = 10


class CallerWorks:
    """One forked worker beside a caller that works too."""

    max_examples = 20

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=2, caller_works=True, **kwargs)


class TestProcessCallerWorks(
    CallerWorks,
    SharesContract,
    InfosContract,
    CallsContract,
    FailuresContract,
    SeedingContract,
    LifecycleContract,
    ObservationModesContract,
):
    """The topics in which it could matter that some environments run beside the caller and others far from it."""


@left_to_test_all()
class TestProcessCallerWorksInTheRest(
    CallerWorks,
    OptionsContract,
    ActionsContract,
    ObservationsContract,
    OutputsContract,
    SpacesContract,
    RealEnvironmentsContract,
):
    """What is checked before anybody works, or is the business of one environment wherever it is."""


class TestOneWorker(SharesContract, FirstReadyContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=1, **kwargs)


class ThreeWorkers:
    """Workers with different numbers of environments."""

    max_examples = 10

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=3, **kwargs)


class TestThreeWorkers(ThreeWorkers, TrajectoriesContract, AutoresetContract, InfosContract):
    """The topics in which rows of different workers are put together."""


@left_to_test_all()
class TestThreeWorkersInTheRest(ThreeWorkers, WaitingContract, CallsContract, FailuresContract):
    """What three workers can hardly do differently from two."""


class OneWorkerEach:
    """No environment has a neighbour."""

    max_examples = 10

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=len(env_fns), **kwargs)


class TestOneWorkerEach(OneWorkerEach, TrajectoriesContract, FirstReadyContract):
    """The topics in which it could matter that workers are many."""


@left_to_test_all()
class TestOneWorkerEachInTheRest(OneWorkerEach, AutoresetContract, WaitingContract):
    """What is the business of one environment, or of the caller."""


class TestOnlyTheCallerWorks(AutoresetContract, WaitingContract, FailuresContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=1, caller_works=True, **kwargs)


class PagesContract(
    ObservationsContract, SpacesContract, AutoresetContract, FailuresContract, TrajectoriesContract, WaitingContract
):
    """The topics in which it could matter that observations are handed out on pages, as only large ones are."""

    max_examples = 10

    @pytest.fixture(autouse=True)
    def _all_are_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pages, "LEAST_BYTES", 1)


class TestSyncOnPages(PagesContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> SyncVectorEnv:
        return SyncVectorEnv(env_fns, **kwargs)


class TestProcessOnPages(PagesContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=2, caller_works=True, **kwargs)


class NoSharedMemory:
    """Gymnasium's `shared_memory=False` is accepted and changes nothing."""

    max_examples = 10

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, shared_memory=False, context="fork", num_workers=2, **kwargs)


class TestNoSharedMemory(NoSharedMemory, OptionsContract):
    """A topic that is soon told."""


@left_to_test_all()
class TestNoSharedMemoryInTheRest(NoSharedMemory, AutoresetContract, SeedingContract, SpacesContract):
    """What data goes through."""


@left_to_test_all()
class TestSpawn(FailuresContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="spawn", num_workers=2, **kwargs)


@left_to_test_all()
class TestForkserver(FailuresContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="forkserver", num_workers=2, **kwargs)
