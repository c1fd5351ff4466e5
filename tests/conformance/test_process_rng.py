"""Workers never share the global random state they inherit."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
from process_fleets import NUM_ENVS, process_fleet

from envfleet.testing.envs import CounterConfig, LotteryEnv, endless_fns

pytestmark = pytest.mark.usefixtures("nothing_left_behind")

LOTTERY = [partial(LotteryEnv, CounterConfig(index=i)) for i in range(NUM_ENVS)]


@pytest.mark.parametrize(
    ("context", "num_workers"), [("fork", 1), ("fork", 2), ("fork", NUM_ENVS), ("spawn", 2), ("forkserver", 2)]
)
def test_constructors_draw_different_lots(context: str, num_workers: int) -> None:
    lots: list[tuple[float, float]] = []
    for _ in range(2):
        with process_fleet(LOTTERY, context, num_workers) as envs:
            lots += envs.get_attr("lots")
    for column in zip(*lots, strict=True):
        assert len(set(column)) == len(lots)


def test_a_working_caller_draws_other_lots_than_its_workers() -> None:
    with process_fleet(LOTTERY, caller_works=True) as envs:
        for column in zip(*envs.get_attr("lots"), strict=True):
            assert len(set(column)) == NUM_ENVS


def test_forking_leaves_the_callers_generators_alone() -> None:
    np.random.seed(3)
    random.seed(3)
    expected = float(np.random.random()), random.random()
    np.random.seed(3)
    random.seed(3)
    with process_fleet(LOTTERY) as envs:
        envs.reset()
    assert (float(np.random.random()), random.random()) == expected


def test_unseeded_environments_differ_in_every_start_method(start_method: str) -> None:
    with process_fleet(endless_fns(NUM_ENVS), start_method) as envs:
        assert len({int(draw) for draw in envs.reset()[0][:, 4]}) > 1
