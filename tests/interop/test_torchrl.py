"""envfleet beside torchrl."""

from __future__ import annotations

import torchrl

import envfleet


def test_both_are_there() -> None:
    assert torchrl.__version__
    with envfleet.make_vec("CartPole-v1", 2) as envs:
        assert envs.reset(seed=0)[0].shape == (2, 4)
