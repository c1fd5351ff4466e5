from __future__ import annotations

from functools import partial

import gymnasium as gym
import pytest
from scripted import Maker

import envfleet.vector

MAKERS: dict[str, Maker] = {
    "gymnasium-sync": gym.vector.SyncVectorEnv,
    "sync": envfleet.vector.SyncVectorEnv,
    # Once torch or pygame has threads, a fleet would be spawned, a second each: nothing that wrappers could tell.
    "process": partial(envfleet.vector.AsyncVectorEnv, context="fork"),
}


@pytest.fixture(scope="session", params=list(MAKERS))
def make(request: pytest.FixtureRequest) -> Maker:
    """Makes a vector environment: make(env_fns, copy=..., autoreset_mode=...)."""
    return MAKERS[request.param]


@pytest.fixture(scope="session", params=[name for name in MAKERS if name != "gymnasium-sync"])
def make_ours(request: pytest.FixtureRequest) -> Maker:
    """Makes one of envfleet's own."""
    return MAKERS[request.param]
