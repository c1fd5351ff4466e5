"""The conformance suite: a new backend passes it or is wrong.

Write a test class, say how your vector env is made, and let pytest run the contract against it:

    from envfleet.testing import VectorEnvContract

    class TestMine(VectorEnvContract):
        def make(self, env_fns, **kwargs):
            return MyVectorEnv(env_fns, **kwargs)

There are two levels. `GymnasiumContract` is what Gymnasium documents of vector envs; its own SyncVectorEnv passes it.
`VectorEnvContract` is what envfleet promises on top of that. It consists of topics; each topic (`SeedingContract`,
`AutoresetContract`, ...) can be taken alone.
`TimeoutsContract` is for backends whose environments run elsewhere, `FirstReadyContract` for those that give results
as they come. The environments the suite is made of are in
`envfleet.testing.envs`, its oracle is in `envfleet.testing.reference`.

The contracts are loaded when first asked for: worker processes import this package for its environments and
should neither need nor pay for pytest.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from envfleet._lazy import lazy_names

if TYPE_CHECKING:
    from envfleet.testing.actions import ActionsContract
    from envfleet.testing.autoreset import AutoresetContract
    from envfleet.testing.base import ContractBase
    from envfleet.testing.calls import CallsContract
    from envfleet.testing.compare import assert_same
    from envfleet.testing.contract import GymnasiumContract, VectorEnvContract
    from envfleet.testing.failures import FailuresContract
    from envfleet.testing.first_ready import FirstReadyContract
    from envfleet.testing.infos import InfosContract
    from envfleet.testing.lifecycle import LifecycleContract
    from envfleet.testing.observations import ObservationModesContract, ObservationsContract
    from envfleet.testing.options import OptionsContract
    from envfleet.testing.outputs import OutputsContract
    from envfleet.testing.realenvironments import RealEnvironmentsContract
    from envfleet.testing.reference import ReferenceFleet
    from envfleet.testing.seeding import SeedingContract
    from envfleet.testing.spaces import SpacesContract
    from envfleet.testing.timeouts import TimeoutsContract
    from envfleet.testing.trajectories import TrajectoriesContract
    from envfleet.testing.waiting import WaitingContract

__all__ = [
    "ActionsContract",
    "AutoresetContract",
    "CallsContract",
    "ContractBase",
    "FailuresContract",
    "FirstReadyContract",
    "GymnasiumContract",
    "InfosContract",
    "LifecycleContract",
    "ObservationModesContract",
    "ObservationsContract",
    "OptionsContract",
    "OutputsContract",
    "RealEnvironmentsContract",
    "ReferenceFleet",
    "SeedingContract",
    "SpacesContract",
    "TimeoutsContract",
    "TrajectoriesContract",
    "VectorEnvContract",
    "WaitingContract",
    "assert_same",
]

_MODULES = {
    "ActionsContract": "envfleet.testing.actions",
    "AutoresetContract": "envfleet.testing.autoreset",
    "CallsContract": "envfleet.testing.calls",
    "ContractBase": "envfleet.testing.base",
    "FailuresContract": "envfleet.testing.failures",
    "FirstReadyContract": "envfleet.testing.first_ready",
    "GymnasiumContract": "envfleet.testing.contract",
    "InfosContract": "envfleet.testing.infos",
    "LifecycleContract": "envfleet.testing.lifecycle",
    "ObservationModesContract": "envfleet.testing.observations",
    "ObservationsContract": "envfleet.testing.observations",
    "OptionsContract": "envfleet.testing.options",
    "OutputsContract": "envfleet.testing.outputs",
    "RealEnvironmentsContract": "envfleet.testing.realenvironments",
    "ReferenceFleet": "envfleet.testing.reference",
    "SeedingContract": "envfleet.testing.seeding",
    "SpacesContract": "envfleet.testing.spaces",
    "TimeoutsContract": "envfleet.testing.timeouts",
    "TrajectoriesContract": "envfleet.testing.trajectories",
    "VectorEnvContract": "envfleet.testing.contract",
    "WaitingContract": "envfleet.testing.waiting",
    "assert_same": "envfleet.testing.compare",
}


__getattr__, __dir__ = lazy_names(__name__, _MODULES)


# pytest explains failed asserts in test files only; in an installed package it has to be asked, before the modules
# are imported. In worker processes there is no pytest and nothing to ask.
if (_pytest := sys.modules.get("pytest")) is not None:
    _pytest.register_assert_rewrite(*sorted(set(_MODULES.values())))
