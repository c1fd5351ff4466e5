from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from envfleet.randomize import (
    ParameterTable,
    check_parameter_names,
    choice,
    draw_parameters,
    fresh_seed,
    loguniform,
    normal,
    uniform,
)

LANDER = {
    "gravity": normal(-10, 1, clip=(-11.99, -0.01)),
    "wind_power": uniform(0, 20),
    "enable_wind": choice([True, False]),
}


# --- distributions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "text"),
    [
        (uniform(0.1, 0.5), "uniform(0.1, 0.5)"),
        (uniform(np.float32(1), np.int64(2)), "uniform(1, 2)"),
        (loguniform(1e-4, 10), "loguniform(0.0001, 10)"),
        (normal(-10, 1), "normal(-10, 1)"),
        (normal(-10, 1.5, clip=(-11.99, -0.01)), "normal(-10, 1.5, clip=(-11.99, -0.01))"),
        (choice([True, None, "rain"]), "choice([True, None, 'rain'])"),
        (choice(range(3)), "choice([0, 1, 2])"),
        (choice(np.array([1, 2])), "choice([1, 2])"),
    ],
)
def test_a_distribution_prints_as_the_call_that_makes_it(distribution: Any, text: str) -> None:
    assert repr(distribution) == text
    assert eval(text) == distribution


def test_distributions_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        uniform(0, 1).low = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: uniform(1, 0), ValueError, "low <= high, got low=1 and high=0"),
        (lambda: uniform("1", 2), TypeError, r"a number for low, got '1' \(str\)"),  # type: ignore[arg-type]
        (lambda: uniform(0, True), TypeError, r"a number for high, got True \(bool\)"),
        (lambda: uniform(0, float("inf")), ValueError, "a finite number for high, got inf"),
        (lambda: loguniform(0, 1), ValueError, r"low > 0, got low=0; for a range with 0 in it use uniform\(\)"),
        (lambda: loguniform(2, 1), ValueError, "low <= high, got low=2 and high=1"),
        (lambda: uniform(-1e308, 1e308), ValueError, "a range that a float can hold"),
        (lambda: normal(0, -1), ValueError, "zero or more, got std=-1"),
        (lambda: normal(float("nan"), 1), ValueError, "a finite number for mean, got nan"),
        (lambda: normal(0, 1, clip=3), TypeError, r"clip=\(low, high\), got 3 \(int\)"),  # type: ignore[arg-type]
        (lambda: normal(0, 1, clip=(0, 1, 2)), TypeError, r"clip=\(low, high\), got \(0, 1, 2\)"),  # type: ignore[arg-type]
        (lambda: normal(0, 1, clip=(None, 1)), TypeError, "both ends of clip, got None"),  # type: ignore[arg-type]
        (lambda: normal(0, 1, clip=(1, 0)), ValueError, r"low <= high, got \(1, 0\)"),
        (lambda: choice([]), ValueError, "at least one option"),
        (lambda: choice({1, 2}), TypeError, r"a list or tuple, got \{1, 2\} \(set\)"),  # type: ignore[arg-type]
        (lambda: choice("ab"), TypeError, r"a list or tuple, got 'ab' \(str\)"),
        (lambda: choice(3), TypeError, r"a list or tuple, got 3 \(int\)"),  # type: ignore[arg-type]
        (lambda: choice(np.zeros((2, 2))), TypeError, "a list or tuple, got array"),
    ],
)
def test_wrong_arguments_are_refused_by_name(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_orders_of_magnitude_are_equally_likely_under_loguniform() -> None:
    column = draw_parameters({"a": loguniform(1e-4, 1.0)}, num_envs=4000, seed=1)["a"]
    assert ((column >= 1e-4) & (column <= 1)).all()
    shares = np.histogram(np.log10(column), bins=4, range=(-4, 0))[0] / 4000
    np.testing.assert_allclose(shares, 0.25, atol=0.03)


def test_uniform_and_normal_have_the_moments_they_promise() -> None:
    table = draw_parameters({"u": uniform(2, 6), "n": normal(-3, 0.5)}, num_envs=4000, seed=1)
    # Four standard errors: 4 * sqrt(16 / 12 / 4000) = 0.073 and 4 * 0.5 / sqrt(4000) = 0.032.
    assert table["u"].mean() == pytest.approx(4, abs=0.073)
    assert table["u"].std() == pytest.approx(4 / np.sqrt(12), abs=0.05)
    assert table["n"].mean() == pytest.approx(-3, abs=0.032)
    assert table["n"].std() == pytest.approx(0.5, abs=0.025)
    assert abs(np.corrcoef(table["u"], table["n"])[0, 1]) < 0.065


def test_every_option_is_equally_likely() -> None:
    drawn = draw_parameters({"c": choice(["a", "b", "c", "d"])}, num_envs=4000, seed=1)["c"].tolist()
    assert [drawn.count(option) for option in "abcd"] == pytest.approx([1000] * 4, abs=110)


def test_clip_moves_outliers_to_the_nearer_end() -> None:
    column = draw_parameters({"x": normal(0, 1, clip=(-0.5, 1))}, num_envs=500, seed=3)["x"]
    free = draw_parameters({"x": normal(0, 1)}, num_envs=500, seed=3)["x"]
    np.testing.assert_array_equal(column, np.clip(free, -0.5, 1))
    assert (column == -0.5).any()
    assert (column == 1).any()


# --- drawing ---------------------------------------------------------------------------------------------


def test_the_values_of_a_seed_are_fixed_for_ever() -> None:
    """Written down once: a change here changes everybody's experiments."""
    assert draw_parameters(LANDER, num_envs=3, seed=7).row(2) == {
        "gravity": -9.900967610435128,
        "wind_power": 7.237651878641533,
        "enable_wind": False,
    }


def test_another_process_draws_the_same() -> None:
    program = (
        "from envfleet.randomize import *\n"
        "print(draw_parameters({'a': uniform(0, 1), 'b': normal(0, 1)}, 3, seed=2**70).row(2))"
    )
    expected = draw_parameters({"a": uniform(0, 1), "b": normal(0, 1)}, 3, seed=2**70).row(2)
    assert eval(subprocess.check_output([sys.executable, "-c", program], text=True)) == expected


def test_other_seeds_names_and_environments_draw_other_values() -> None:
    one, two = (draw_parameters({"a": uniform(0, 1), "b": uniform(0, 1)}, 50, seed=seed) for seed in (0, 1))
    assert len({*one["a"], *one["b"], *two["a"], *two["b"]}) == 200


def test_numbers_reach_the_environment_as_plain_python() -> None:
    row = draw_parameters({**LANDER, "lanes": choice(np.arange(1, 4))}, num_envs=1, seed=0).row(0)
    assert [type(value) for value in row.values()] == [float, float, bool, int]


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ([True, False], np.bool_),
        ([1, 2, 3], np.int64),
        ([0.5, 1.0], np.float64),
        ([1, 2.5], object),
        ([True, 1], object),
        ([None, "rain", ("snow", 3)], object),
        ([[1, 2], {"a": 1}], object),
        ([2**80, -(2**80)], object),
    ],
)
def test_an_option_keeps_its_type(options: list[Any], dtype: Any) -> None:
    table = draw_parameters({"x": choice(options)}, num_envs=40, seed=0)
    assert table["x"].dtype == dtype
    drawn = [table.row(index)["x"] for index in range(40)]
    assert {(type(value), repr(value)) for value in drawn} == {(type(o), repr(o)) for o in options}


@pytest.mark.parametrize(
    ("randomize", "num_envs", "seed", "error", "message"),
    [
        ({"g": -9.8}, 2, 0, TypeError, r"randomize\['g'\] .*got -9.8 \(float\); .*ordinary keyword"),
        ({"g": [1, 2]}, 2, 0, TypeError, r"got \[1, 2\] \(list\); .*write choice\(\[1, 2\]\)"),
        ({"g": uniform}, 2, 0, TypeError, r"randomize\['g'\] needs uniform\(\), loguniform\(\), normal\(\) or"),
        ({3: uniform(0, 1)}, 2, 0, TypeError, r"names as strings, got 3 \(int\)"),
        ([uniform(0, 1)], 2, 0, TypeError, "needs a dict of parameter name to"),
        ({}, 0, 0, ValueError, "num_envs must be 1 or more, got 0"),
        ({}, 2.0, 0, TypeError, r"num_envs must be an integer, got 2 \(float\)"),
        ({}, 2, -1, ValueError, "randomize_seed must be 0 or more, got -1"),
        ({}, 2, True, TypeError, r"randomize_seed must be an integer, got True \(bool\)"),
    ],
)
def test_draw_refuses_what_it_cannot_use(
    randomize: Any, num_envs: Any, seed: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        draw_parameters(randomize, num_envs, seed)


def test_fresh_seeds_differ_and_fit_an_int64() -> None:
    seeds = [fresh_seed() for _ in range(20)]
    assert len(set(seeds)) == 20
    assert all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds)


# --- the table -------------------------------------------------------------------------------------------


def test_the_table_is_a_mapping_of_read_only_columns() -> None:
    table = draw_parameters(LANDER, num_envs=4, seed=0)
    assert list(table) == ["gravity", "wind_power", "enable_wind"]
    assert len(table) == 3
    assert table.num_envs == 4
    assert "gravity" in table
    assert "mass" not in table
    assert {column.shape for column in table.values()} == {(4,)}
    with pytest.raises(ValueError, match="read-only"):
        table["gravity"][0] = 0
    with pytest.raises(KeyError, match="no parameter 'mass' was randomised; there is gravity, wind_power"):
        table["mass"]


@pytest.mark.parametrize("index", [-1, 4])
def test_a_row_that_is_not_there_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match=f"environments 0 to 3, got {index}"):
        draw_parameters(LANDER, num_envs=4, seed=0).row(index)


def test_tables_compare_by_value() -> None:
    table = draw_parameters(LANDER, num_envs=4, seed=0)
    assert table == draw_parameters(LANDER, num_envs=4, seed=0)
    assert table != draw_parameters(LANDER, num_envs=4, seed=1)
    assert table != draw_parameters(LANDER, num_envs=5, seed=0)
    assert table != draw_parameters({"gravity": LANDER["gravity"]}, num_envs=4, seed=0)
    assert table != {}


def test_a_pickled_table_comes_back_equal_and_read_only() -> None:
    table = draw_parameters({**LANDER, "skin": choice([None, "red"])}, num_envs=4, seed=0)
    copy = pickle.loads(pickle.dumps(table))
    assert copy == table
    assert copy["skin"].dtype == object
    assert not any(column.flags.writeable for column in copy.values())


def test_the_table_keeps_a_copy_of_its_own() -> None:
    column = np.zeros(2)
    table = ParameterTable({"x": column}, 2)
    column[0] = 9
    assert table["x"].tolist() == [0, 0]


def test_the_table_prints_aligned() -> None:
    table = ParameterTable(
        {
            "gravity": np.array([-9.492471234, -10.5]),
            "skin": np.array([None, "a name too long for a table cell"], dtype=object),
        },
        2,
    )
    assert repr(table).splitlines() == [
        "env |  gravity |                     skin",
        "----+----------+-------------------------",
        "  0 | -9.49247 |                     None",
        "  1 |    -10.5 | 'a name too long for ...",
    ]


def test_a_long_table_is_shortened_in_the_middle() -> None:
    def env_column(num_envs: int) -> list[str]:
        lines = repr(draw_parameters(LANDER, num_envs, seed=0)).splitlines()
        return [line.split(" | ")[0].strip() for line in lines[2:]]

    assert env_column(16) == [str(index) for index in range(16)]
    assert env_column(100) == [*map(str, range(10)), "...", "95", "96", "97", "98", "99"]


def test_a_table_without_parameters_still_has_rows() -> None:
    table = draw_parameters({}, num_envs=3, seed=0)
    assert table.row(2) == {}
    assert repr(table) == "no randomised parameters, 3 environments"


# --- names -----------------------------------------------------------------------------------------------


class Lander:
    def __init__(self, gravity: float = -10.0, *, wind_power: float = 15.0) -> None: ...

    def rebuild(self, gravity: float) -> None: ...

    def __call__(self, mass: float) -> None: ...


def with_kwargs(gravity: float, **kwargs: Any) -> None: ...


def positional(gravity: float, /, *args: Any, wind_power: float = 1.0) -> None: ...


@pytest.mark.parametrize(
    ("constructor", "accepted"),
    [
        (Lander, ["gravity", "wind_power"]),
        (Lander().rebuild, ["gravity"]),
        (Lander(), ["mass"]),
        (functools.partial(Lander, wind_power=3.0), ["gravity", "wind_power"]),
        (functools.partial(Lander, -9.8), ["wind_power"]),
        (positional, ["wind_power"]),
        (lambda: None, []),
    ],
)
def test_names_are_checked_against_the_signature(constructor: Any, accepted: list[str]) -> None:
    check_parameter_names(accepted, constructor, "Lander-v0")
    with pytest.raises(TypeError) as caught:
        check_parameter_names([*accepted, "nonsense"], constructor, "Lander-v0")
    listed = ", ".join(accepted) or "no parameters at all"
    assert str(caught.value) == f"Lander-v0 has no parameter 'nonsense'; its constructor accepts {listed}"


def test_a_close_match_is_suggested_and_every_unknown_name_told() -> None:
    message = r"no parameter 'gravty' \(did you mean 'gravity'\?\) and no 'colour'; its constructor accepts"
    with pytest.raises(TypeError, match=message):
        check_parameter_names(["gravty", "wind_power", "colour"], Lander, "Lander-v0")


@pytest.mark.parametrize("constructor", [with_kwargs, functools.partial(with_kwargs, 1.0), dict])
def test_a_constructor_that_takes_anything_or_cannot_tell_accepts_every_name(constructor: Any) -> None:
    check_parameter_names(["anything"], constructor, "Open-v0")
