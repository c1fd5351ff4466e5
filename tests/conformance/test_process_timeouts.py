"""A wait that expires loses nothing, by every start method and with the hanging environment anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from envfleet.testing import TimeoutsContract
from envfleet.testing.envs import EnvFn
from envfleet.vector import AsyncVectorEnv

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


class TestFork(TimeoutsContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=2, **kwargs)


class TestForkFirstWorkerHangs(TestFork):
    hanging = 0


class TestOneWorker(TimeoutsContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=1, **kwargs)


class TestCallerWorks(TimeoutsContract):
    hanging = 4

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="fork", num_workers=2, caller_works=True, **kwargs)


class TestSpawn(TimeoutsContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(env_fns, context="spawn", num_workers=2, **kwargs)
