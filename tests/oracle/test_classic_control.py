"""Classic control in C++ against Gymnasium's: equal to the last bit."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode
from oracle import Case, compare, in_modes_by_turns

CASES = [
    Case("Acrobot-v1"),
    Case("Acrobot-v1", {"max_episode_steps": 40}),
    Case("CartPole-v1"),
    Case("CartPole-v1", {"sutton_barto_reward": True, "max_episode_steps": 30}),
    Case("CartPole-v0"),
    Case("CartPole-v0", {"max_episode_steps": -1}),
    Case("MountainCar-v0"),
    Case("MountainCar-v0", {"goal_velocity": 0.01}),
    Case("MountainCarContinuous-v0"),
    Case("MountainCarContinuous-v0", {"goal_velocity": 0.02, "max_episode_steps": 150}),
    Case("Pendulum-v1"),
    Case("Pendulum-v1", {"g": 9.81, "max_episode_steps": 77}),
]


@in_modes_by_turns(CASES)
def test_every_number_is_gymnasiums(case: Case, mode: AutoresetMode) -> None:
    compare(case, mode)
