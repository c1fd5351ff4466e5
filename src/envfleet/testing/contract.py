"""The whole contract: every topic in one class."""

from __future__ import annotations

from envfleet.testing.actions import ActionsContract
from envfleet.testing.autoreset import AutoresetContract
from envfleet.testing.calls import CallsContract
from envfleet.testing.failures import FailuresContract
from envfleet.testing.infos import InfosContract
from envfleet.testing.lifecycle import LifecycleContract
from envfleet.testing.observations import ObservationModesContract, ObservationsContract
from envfleet.testing.options import OptionsContract
from envfleet.testing.outputs import OutputsContract
from envfleet.testing.realenvironments import RealEnvironmentsContract
from envfleet.testing.seeding import SeedingContract
from envfleet.testing.spaces import SpacesContract
from envfleet.testing.trajectories import TrajectoriesContract
from envfleet.testing.waiting import WaitingContract


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
    """Everything a vector env promises; a backend passes it or is wrong."""
