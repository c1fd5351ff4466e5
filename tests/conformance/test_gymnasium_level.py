"""The lower level of the suite asks for what Gymnasium documents: Gymnasium's own vector envs pass it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import pytest
from selection import left_to_test_all

from envfleet.testing import GymnasiumContract
from envfleet.testing.autoreset import GymnasiumAutoreset
from envfleet.testing.envs import EnvFn
from envfleet.testing.seeding import GymnasiumSeeding

pytestmark = pytest.mark.skipif(not gym.__version__.startswith("1.4."), reason="the level is that of Gymnasium 1.4")


class TestGymnasiumsSync(GymnasiumContract):
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> Any:
        return gym.vector.SyncVectorEnv(env_fns, **kwargs)


class Processes:
    """A process per environment, which takes its time."""

    num_envs = 3

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> Any:
        return gym.vector.AsyncVectorEnv(env_fns, context="fork", **kwargs)


class TestGymnasiumsAsync(Processes, GymnasiumAutoreset, GymnasiumSeeding):
    """The topics that are most its own."""


@left_to_test_all()
class TestGymnasiumsAsyncInEverything(Processes, GymnasiumContract):
    """The rest, at a process per environment."""
