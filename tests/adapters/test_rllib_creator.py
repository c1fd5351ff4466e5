"""What RLlib's creator refuses, which needs no RLlib."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium.vector import AutoresetMode

from envfleet.adapters.rllib import creator


@pytest.mark.parametrize(
    ("given", "context", "says"),
    [
        ({"autoreset_mode": "SAME_STEP"}, {}, "Leave autoreset_mode out of creator"),
        (
            {"vector_kwargs": {"autoreset_mode": AutoresetMode.DISABLED}},
            {},
            "out of vector_kwargs",
        ),
        ({"copy": False}, {}, "Leave copy out of creator"),
        ({}, {"num_envs": 2, "autoreset_mode": "SameStep"}, "Leave autoreset_mode out of env_config"),
        ({}, {}, "RLlib asked for a single environment"),
    ],
)
def test_what_would_train_otherwise_is_refused(given: dict[str, Any], context: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        creator("CartPole-v1", **given)(context)


def test_what_is_settled_may_be_said() -> None:
    make = creator("CartPole-v1", "sync", {"autoreset_mode": "NextStep"}, copy=True)
    with make({"num_envs": 3, "autoreset_mode": "NEXT_STEP"}) as envs:
        assert (envs.num_envs, envs.autoreset_mode) == (3, AutoresetMode.NEXT_STEP)
