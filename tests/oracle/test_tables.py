"""Every state and every action of the environments that have a table, against Gymnasium's table."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envfleet import make_vec

CASES: list[tuple[str, dict[str, Any]]] = [
    ("Taxi-v4", {}),
    ("Taxi-v4", {"is_rainy": True, "rainy_probability": 0.5}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
    ("FrozenLake8x8-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False, "reward_schedule": (3.0, -2.0, 0.25)}),
]


@pytest.mark.parametrize(("env_id", "kwargs"), CASES, ids=lambda value: str(value))
def test_every_transition_is_one_of_the_tables(env_id: str, kwargs: dict[str, Any]) -> None:
    reference: Any = gym.make(env_id, **kwargs).unwrapped
    states = len(reference.P)
    seen: set[tuple[Any, ...]] = set()
    with make_vec(env_id, states, "native", {"autoreset_mode": "Disabled"}, **kwargs) as envs:
        for trial in range(40):
            for action in range(int(reference.action_space.n)):
                envs.reset(seed=1000 * trial + action)
                envs.set_attr("s", list(range(states)))
                after, rewards, terminated, _, infos = envs.step(np.full(states, action))
                outcomes = zip(infos["prob"].tolist(), after.tolist(), rewards.tolist(), terminated, strict=True)
                for state, outcome in enumerate(outcomes):
                    assert outcome in reference.P[state][action], (state, action, outcome)
                    seen.add((state, action, *outcome))
    table = {
        (state, action, *outcome)
        for state, actions in reference.P.items()
        for action, outcomes in actions.items()
        for outcome in outcomes
    }
    assert seen == table


def test_the_taxis_action_mask_is_gymnasiums_in_every_state() -> None:
    reference: Any = gym.make("Taxi-v4").unwrapped
    with make_vec("Taxi-v4", 500, "native", {"autoreset_mode": "Disabled"}) as envs:
        envs.reset(seed=0)
        envs.set_attr("s", list(range(500)))
        after, *_, infos = envs.step(np.zeros(500, np.int64))
        for row, state in enumerate(after.tolist()):
            np.testing.assert_array_equal(infos["action_mask"][row], reference.action_mask(state))
