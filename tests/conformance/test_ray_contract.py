"""The one contract over actors, of a stand-in for Ray: see small_ray.py. Other numbers of actors: test_ray.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from envfleet import RayVectorEnv
from envfleet.testing import FirstReadyContract, TimeoutsContract, VectorEnvContract
from envfleet.testing.envs import EnvFn

pytestmark = pytest.mark.usefixtures("stand_in_for_ray")


class TestTwoActors(VectorEnvContract, FirstReadyContract, TimeoutsContract):
    max_examples = 5

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> RayVectorEnv:
        return RayVectorEnv(env_fns, num_workers=2, **kwargs)
