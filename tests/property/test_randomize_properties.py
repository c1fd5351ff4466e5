from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from envfleet.randomize import Choice, Distribution, Normal, Uniform, choice, draw_parameters, normal, uniform

NUMBERS = st.floats(-1e6, 1e6)
PAIRS = st.tuples(NUMBERS, NUMBERS).map(sorted)
OPTIONS = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.none(), st.text(max_size=5))

UNIFORMS = PAIRS.map(lambda ends: uniform(*ends))
NORMALS = st.builds(normal, NUMBERS, st.floats(0, 1e6), st.one_of(st.none(), PAIRS.map(tuple)))
CHOICES = st.lists(OPTIONS, min_size=1, max_size=5).map(choice)
DISTRIBUTIONS: st.SearchStrategy[Distribution] = st.one_of(UNIFORMS, NORMALS, CHOICES)

NAMES = st.text("abcdefghijklmnopqrstuvwxyz_äλ", min_size=1, max_size=8)
TABLES = st.dictionaries(NAMES, DISTRIBUTIONS, max_size=4)
SEEDS = st.integers(0, 2**80)
SIZES = st.integers(1, 12)


def told_apart(row: dict[str, Any]) -> dict[str, tuple[type, Any]]:
    """With the types, because True == 1 == 1.0 in Python."""
    return {name: (type(value), value) for name, value in row.items()}


@given(TABLES, SIZES, SEEDS)
def test_the_same_arguments_give_the_same_table(randomize: dict[str, Distribution], num_envs: int, seed: int) -> None:
    assert draw_parameters(randomize, num_envs, seed) == draw_parameters(randomize, num_envs, seed)


@given(TABLES, SIZES, SIZES, SEEDS)
def test_more_environments_change_no_row(
    randomize: dict[str, Distribution], num_envs: int, more: int, seed: int
) -> None:
    small, large = (draw_parameters(randomize, size, seed) for size in (num_envs, num_envs + more))
    for index in range(num_envs):
        assert told_apart(small.row(index)) == told_apart(large.row(index))


@given(TABLES, TABLES, SIZES, SEEDS)
def test_more_parameters_in_any_order_change_no_column(
    randomize: dict[str, Distribution], others: dict[str, Distribution], num_envs: int, seed: int
) -> None:
    alone = draw_parameters(randomize, num_envs, seed)
    together = draw_parameters({**others, **dict(reversed(randomize.items()))}, num_envs, seed)
    for name in randomize:
        assert alone[name].dtype == together[name].dtype
        assert alone[name].tolist() == together[name].tolist()


@given(DISTRIBUTIONS, SEEDS)
def test_a_sample_is_what_its_distribution_allows(distribution: Distribution, seed: int) -> None:
    value = distribution.sample(np.random.default_rng(seed))
    match distribution:
        case Uniform(low, high) | Normal(clip=(low, high)):
            assert type(value) is float
            assert low <= value <= high
        case Normal():
            assert type(value) is float
        case Choice(options):
            assert any(value is option for option in options)


@given(TABLES, SIZES, SEEDS)
def test_tables_survive_pickling_and_print_a_line_a_row(
    randomize: dict[str, Distribution], num_envs: int, seed: int
) -> None:
    table = draw_parameters(randomize, num_envs, seed)
    copy = pickle.loads(pickle.dumps(table))
    assert copy == table
    assert [told_apart(copy.row(i)) for i in range(num_envs)] == [told_apart(table.row(i)) for i in range(num_envs)]
    lines = repr(table).split("\n")
    assert not randomize or len(lines) == num_envs + 2
    assert len({len(line) for line in lines}) == 1


@given(DISTRIBUTIONS)
def test_a_distribution_prints_as_python_that_makes_it_again(distribution: Distribution) -> None:
    again = eval(repr(distribution), {"uniform": uniform, "normal": normal, "choice": choice, "inf": np.inf})
    assert again == distribution
