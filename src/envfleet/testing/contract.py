"""The two levels of the contract, each with every topic in one class.

Within a topic, the class whose name begins with Gymnasium holds what Gymnasium documents; the topic's own class adds
what only envfleet promises.
"""

from __future__ import annotations

from envfleet.testing.actions import ActionsContract
from envfleet.testing.autoreset import AutoresetContract, GymnasiumAutoreset
from envfleet.testing.calls import CallsContract, GymnasiumCalls
from envfleet.testing.failures import FailuresContract
from envfleet.testing.infos import GymnasiumInfos, InfosContract
from envfleet.testing.lifecycle import GymnasiumLifecycle, LifecycleContract
from envfleet.testing.observations import (
    GymnasiumObservationModes,
    GymnasiumObservations,
    ObservationModesContract,
    ObservationsContract,
)
from envfleet.testing.options import GymnasiumOptions, OptionsContract
from envfleet.testing.outputs import GymnasiumOutputs, OutputsContract
from envfleet.testing.realenvironments import GymnasiumRealEnvironments, RealEnvironmentsContract
from envfleet.testing.seeding import GymnasiumSeeding, SeedingContract
from envfleet.testing.spaces import GymnasiumSpaces, SpacesContract
from envfleet.testing.trajectories import GymnasiumTrajectories, TrajectoriesContract
from envfleet.testing.waiting import WaitingContract


class GymnasiumContract(
    GymnasiumSeeding,
    GymnasiumOptions,
    GymnasiumAutoreset,
    GymnasiumObservations,
    GymnasiumObservationModes,
    GymnasiumOutputs,
    GymnasiumInfos,
    GymnasiumSpaces,
    GymnasiumCalls,
    GymnasiumLifecycle,
    GymnasiumTrajectories,
    GymnasiumRealEnvironments,
):
    """What Gymnasium documents of vector envs; its own SyncVectorEnv passes it."""


class VectorEnvContract(
    SeedingContract,
    OptionsContract,
    AutoresetContract,
    ActionsContract,
    ObservationsContract,
    ObservationModesContract,
    OutputsContract,
    InfosContract,
    SpacesContract,
    CallsContract,
    WaitingContract,
    LifecycleContract,
    FailuresContract,
    TrajectoriesContract,
    RealEnvironmentsContract,
):
    """Everything a vector env of envfleet promises, on top of GymnasiumContract."""
