from __future__ import annotations

import json
import math
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envfleet import choice, normal, uniform
from envfleet.randomize import Distribution, draw_parameters
from envfleet.scenarios import PRESETS, Sweep, format_randomize, parse_randomize, parse_sweep


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gravity=uniform(-11,-9)", uniform(-11, -9)),
        (" gravity = uniform( low=-11, high=-9 ) ", uniform(-11, -9)),
        ("gravity=normal(-10,1)", normal(-10, 1)),
        ("gravity=normal(-10,1,-11.99,-0.01)", normal(-10, 1, clip=(-11.99, -0.01))),
        ("gravity=normal(-10, 1, clip=(-11.99, -0.01))", normal(-10, 1, clip=(-11.99, -0.01))),
        ("gravity=choice(-1,-2.5)", choice([-1, -2.5])),
        ("gravity=choice([True, False])", choice([True, False])),
        ("gravity=choice(-10)", choice([-10])),
        ("gravity=choice('a=b', None)", choice(["a=b", None])),
        ("gravity=choice([[1, 2]])", choice([[1, 2]])),
        ("gravity=uniform(1e-3, 2_000)", uniform(0.001, 2000)),
    ],
)
def test_a_distribution_is_read(text: str, expected: Distribution) -> None:
    parsed = parse_randomize([text])
    assert parsed == {"gravity": expected}
    assert repr(parsed["gravity"]) == repr(expected)  # True == 1, but they are not the same to a constructor


numbers = st.floats(-1e300, 1e300)
values = st.none() | st.booleans() | st.integers() | numbers | st.text() | st.lists(st.integers(), max_size=2)
distributions = st.one_of(
    st.tuples(numbers, numbers).map(lambda ends: uniform(min(ends), max(ends))),
    st.builds(normal, numbers, st.floats(0, 1e300)),
    st.builds(
        lambda mean, std, ends: normal(mean, std, clip=(min(ends), max(ends))),
        numbers,
        st.floats(0, 1e300),
        st.tuples(numbers, numbers),
    ),
    st.lists(values, min_size=1, max_size=4).map(choice),
)


@given(randomize=st.dictionaries(st.sampled_from(["gravity", "wind_power", "x", "Ω"]), distributions))
def test_what_is_written_is_read_back(randomize: dict[str, Distribution]) -> None:
    texts = json.loads(json.dumps(format_randomize(randomize)))
    assert all(isinstance(text, str) for text in texts.values())
    again = parse_randomize([f"{name}={text}" for name, text in texts.items()])
    assert again == randomize
    assert format_randomize(again) == texts


@given(text=st.text(alphabet="gx=uniform(normal,choice)[]{}'\"*:-+.0123456789 \\\n", max_size=40))
def test_no_text_breaks_the_parsers(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's own about odd escapes in texts
        for parse in (lambda: parse_randomize([text]), lambda: parse_sweep(text)):
            try:
                parse()
            except ValueError as error:
                assert "cannot read" in str(error) and "for example" in str(error)  # noqa: PT017, PT018


@pytest.mark.parametrize(
    "text",
    [
        "gravity=uniform(__import__('os').getpid(), 1)",
        "gravity=__import__('os').getpid()",
        "gravity=[exit()][0]",
        "gravity=choice(*[1, 2])",
        "gravity=uniform(**{'low': 1, 'high': 2})",
        "gravity=uniform(low, high)",
        "gravity=(lambda: 1)()",
    ],
)
def test_nothing_is_run(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        parse_randomize([text])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gravity", r"neither name=distribution nor a preset; presets are lunar-lander"),
        ("lunarlander", r"did you mean 'lunar-lander'\?"),
        ("gravity=", r"expected a parameter's name, an equals sign"),
        ("=uniform(1, 2)", r"'' cannot be the name"),
        ("my gravity=uniform(1, 2)", r"'my gravity' cannot be the name"),
        ("lambda=uniform(1, 2)", r"'lambda' cannot be the name"),
        ("gravity=-10", r"'-10' is no distribution"),
        ("gravity=uniform(1, 2", r"'uniform\(1, 2' is no distribution"),
        (
            "gravity=unifrom(1, 2)",
            r"no distribution 'unifrom' \(did you mean 'uniform'\?\), only uniform, loguniform, normal, choice",
        ),
        ("gravity=uniform(1)", r"uniform\(\) missing 1 required positional argument: 'high'"),
        ("gravity=uniform(2, 1)", r"needs low <= high"),
        ("gravity=uniform('a', 1)", r"needs a number for low"),
        ("gravity=uniform(a, 1)", r"arguments must be numbers, True, False, None or texts in quotes"),
        ("gravity=normal(1, 2, 3)", r"optionally a lowest and a highest value"),
        ("gravity=normal(1, 2, 3, 4, clip=(3, 4))", r"optionally a lowest and a highest value"),
        ("gravity=normal(1, -2)", r"standard deviation of zero or more"),
        ("gravity=choice()", r"at least one option"),
    ],
)
def test_an_error_shows_the_text_the_problem_and_an_example(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        parse_randomize([text])
    assert repr(text) in str(raised.value)
    assert "Write for example gravity=uniform(-11, -9)" in str(raised.value)


def test_a_parameter_written_out_takes_the_place_of_a_presets() -> None:
    for texts in (["lunar-lander", "gravity=uniform(-11,-9)"], ["gravity=uniform(-11,-9)", " lunar-lander "]):
        assert parse_randomize(texts) == {**PRESETS["lunar-lander"], "gravity": uniform(-11, -9)}
    assert parse_randomize([]) == {}


def test_a_parameter_written_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gravity is given twice, as uniform\(1, 2\) and by 'gravity=uniform"):
        parse_randomize(["gravity=uniform(1,2)", "gravity=uniform(3,4)"])


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"needs a list of texts, got the text 'lunar-lander': write \['lunar-lander'\]"
    ):
        parse_randomize("lunar-lander")


def test_presets_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        PRESETS["lunar-lander"]["gravity"] = uniform(1, 2)  # type: ignore[index]


def test_the_lunar_lander_accepts_its_preset_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Box2D warns while it is imported and crashes where that is an error
        gymnasium.make("LunarLander-v3").close()
    table = draw_parameters(PRESETS["lunar-lander"], 200, seed=0)
    assert set(table) == {"gravity", "enable_wind", "wind_power", "turbulence_power"}
    for index in range(20):
        gymnasium.make("LunarLander-v3", **table.row(index)).close()
    assert -12 < table["gravity"].min() < table["gravity"].max() < 0
    assert 0 <= table["wind_power"].min() < 2 < 18 < table["wind_power"].max() <= 20
    assert 0 <= table["turbulence_power"].min() < table["turbulence_power"].max() <= 2
    assert set(table["enable_wind"].tolist()) == {True, False}


@pytest.mark.parametrize("options", [[object()], [math.inf], [math.nan], [np.float64(1)], [1, print]])
def test_what_could_not_be_read_back_is_not_written(options: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"randomize\['mode'\] is choice.*cannot be written down and read again"):
        format_randomize({"mode": choice(options)})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("gravity=-12:-2:6", (-12, -10, -8, -6, -4, -2)),
        ("gravity=-2:-12:3", (-2, -7, -12)),
        ("gravity=0:1:11", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
        ("gravity=0:1:2", (0, 1)),
        ("gravity=0.0:10:2", (0.0, 10.0)),
        ("gravity= -1.5 : 1.5 : 3 ", (-1.5, 0.0, 1.5)),
        ("gravity=0,5,10", (0, 5, 10)),
        ("gravity=-9.81", (-9.81,)),
        ("gravity=True,False", (True, False)),
        ("gravity='flat','hilly'", ("flat", "hilly")),
        ("gravity=None, 3,", (None, 3)),
    ],
)
def test_a_sweep_is_read(text: str, values: tuple[Any, ...]) -> None:
    sweep = parse_sweep(text)
    assert sweep == Sweep("gravity", values)
    assert [type(value) for value in sweep.values] == [type(value) for value in values]
    assert parse_sweep(str(sweep)) == sweep


@given(start=st.floats(-1e6, 1e6), stop=st.floats(-1e6, 1e6), count=st.integers(2, 30))
def test_a_range_is_evenly_spaced_with_both_ends(start: float, stop: float, count: int) -> None:
    values = parse_sweep(f"x={start!r}:{stop!r}:{count}").values
    assert (values[0], values[-1]) == (start, stop)
    np.testing.assert_allclose(values, np.linspace(start, stop, count), rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gravity", "an equals sign"),
        ("gravity=", "an equals sign"),
        ("2gravity=1,2", "'2gravity' cannot be the name"),
        ("gravity=-12:-2", "start:stop:count"),
        ("gravity=-12:-2:6:7", "start:stop:count"),
        ("gravity=-12:-2:1", "at least 2"),
        ("gravity=-12:-2:1.5", "at least 2"),
        ("gravity=-12:-2:-3", "at least 2"),
        ("gravity=a:b:3", "two numbers"),
        ("gravity=-inf:0:3", "two numbers"),
        ("gravity=flat,hilly", "a list of values with commas"),
        ("gravity=1],[2", "a list of values with commas"),
        ("gravity=,", "a list of values with commas"),
        ("gravity=exit()", "a list of values with commas"),
    ],
)
def test_a_sweep_that_cannot_be_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        parse_sweep(text)
    assert repr(text) in str(raised.value)
    assert "Write for example gravity=-11:-2:6" in str(raised.value)
