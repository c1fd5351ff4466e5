"""The table in the docs is that of the record, and the record is of what the tests compare, at full length."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import parity
import pytest
import record
import test_box2d
import test_classic_control
import test_mujoco
import test_toy_text
from gymnasium.vector import AutoresetMode

from envfleet.native import catalogue

CASES = [
    *test_classic_control.CASES,
    *test_toy_text.CASES,
    *test_box2d.CASES,
    *test_mujoco.SAMPLED,
    *test_mujoco.WHOLE,
    *test_mujoco.VARIED,
]
COMPARISONS = record.read()


def native_ids() -> Iterator[str]:
    yield from (spec.id for spec in gym.registry.values() if spec.namespace is None and catalogue.find(spec))


def test_the_docs_say_what_was_compared() -> None:
    assert parity.table_in(parity.PAGE.read_text()) == parity.parity_table(COMPARISONS), "run make oracle"


def test_every_case_is_in_the_record_and_was_equal() -> None:
    compared = {(each.env_id, record.known_arguments(each.arguments)) for each in COMPARISONS}
    cases = {(case.env_id, record.known_arguments(case.kwargs)) for case in CASES}
    assert cases <= compared, "run make oracle"
    assert all(each.equal for each in COMPARISONS)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_every_id_was_compared_as_it_is_registered_for_twenty_seeds_and_a_thousand_steps(mode: AutoresetMode) -> None:
    long = {
        each.env_id
        for each in COMPARISONS
        if not each.arguments and each.mode == mode.value and each.seeds >= 20 and each.steps >= 1000
    }
    assert long == set(native_ids())


def test_a_difference_shows_in_the_table() -> None:
    equal = record.Comparison("Some-v0", {}, "NextStep", 20, 1000, equal=True)
    table = parity.parity_table([equal, record.Comparison("Some-v0", {"g": 1}, "SameStep", 4, 100)])
    assert "| `Some-v0` | 20 x 1,000, NextStep only | `g`: 4 x 100, SameStep only | 0.0 M | **differs** |" in table
