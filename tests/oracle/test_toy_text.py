"""Toy text in C++ against Gymnasium's: equal to the last bit, infos included."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode
from oracle import Case, compare, in_modes_by_turns

TWO_STARTS = ["SFHF", "FFFF", "FFSG"]

CASES = [
    Case("Blackjack-v1"),
    Case("Blackjack-v1", {"sab": False, "natural": True}),
    Case("Blackjack-v1", {"sab": False}),
    Case("CliffWalking-v1"),
    Case("CliffWalking-v1", {"max_episode_steps": 60}),
    Case("CliffWalkingSlippery-v1", ends=5),
    Case("CliffWalkingSlippery-v1", {"max_episode_steps": 200}),
    Case("FrozenLake-v1"),
    Case("FrozenLake-v1", {"is_slippery": False, "reward_schedule": (10, -3.5, -0.1)}),
    Case("FrozenLake-v1", {"desc": TWO_STARTS, "success_rate": 0.7}),
    Case("FrozenLake8x8-v1"),
    Case("Taxi-v4"),
    Case("Taxi-v4", {"is_rainy": True, "fickle_passenger": True, "rainy_probability": 0.6}),
    Case("Taxi-v4", {"fickle_passenger": True, "fickle_probability": 0.9}),
]


@in_modes_by_turns(CASES)
def test_every_number_is_gymnasiums(case: Case, mode: AutoresetMode) -> None:
    compare(case, mode)
