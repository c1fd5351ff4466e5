"""MuJoCo's environments in C++ against Gymnasium's: equal to the last bit, infos included."""

from __future__ import annotations

import pytest
from gymnasium.vector import AutoresetMode
from oracle import Case, compare

CASES = [
    Case("Ant-v5"),
    Case("HalfCheetah-v5"),
    Case("Hopper-v5"),
    Case("Humanoid-v5"),
    Case("HumanoidStandup-v5"),
    Case("InvertedDoublePendulum-v5"),
    Case("InvertedPendulum-v5"),
    Case("Pusher-v5"),
    Case("Reacher-v5"),
    Case("Swimmer-v5"),
    Case("Walker2d-v5"),
]


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_number_is_gymnasiums(case: Case, mode: AutoresetMode) -> None:
    assert compare(case, mode) >= 10
