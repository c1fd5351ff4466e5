"""envfleet beside tianshou."""

from __future__ import annotations

import tianshou

import envfleet


def test_both_are_there() -> None:
    assert tianshou.__version__
    with envfleet.make_vec("CartPole-v1", 2) as envs:
        assert envs.reset(seed=0)[0].shape == (2, 4)
