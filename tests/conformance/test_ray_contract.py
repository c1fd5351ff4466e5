"""The one contract over actors, of a stand-in for Ray: see small_ray.py. Other numbers of actors: test_ray.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from selection import left_to_test_all

from envfleet import RayVectorEnv
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
    TimeoutsContract,
    TrajectoriesContract,
    WaitingContract,
)
from envfleet.testing.envs import EnvFn

pytestmark = pytest.mark.usefixtures("stand_in_for_ray")


class TwoActors:
    """Environments in two actors."""

    max_examples = 5

    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> RayVectorEnv:
        return RayVectorEnv(env_fns, num_workers=2, **kwargs)


class TestTwoActors(
    TwoActors,
    SeedingContract,
    AutoresetContract,
    ObservationsContract,
    ObservationModesContract,
    InfosContract,
    SpacesContract,
    CallsContract,
    WaitingContract,
    LifecycleContract,
    FailuresContract,
    TrajectoriesContract,
    FirstReadyContract,
    TimeoutsContract,
):
    """The topics in which it could matter that data goes through Ray."""


@left_to_test_all()
class TestTwoActorsInTheRest(TwoActors, OptionsContract, ActionsContract, OutputsContract, RealEnvironmentsContract):
    """What is checked before anybody works, or by the environments' shard wherever it is."""
