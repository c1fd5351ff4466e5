"""Scenarios as text: what to randomise and what to sweep, as written on a command line.

    parse_randomize(["lunar-lander", "gravity=uniform(-11, -9)"])
    parse_sweep("gravity=-12:-2:6")

Texts are read as Python literals and never executed. `parse_randomize` reads what `format_randomize` writes.
"""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

from envfleet._names import did_you_mean
from envfleet.randomize import (
    Choice,
    Distribution,
    LogUniform,
    Normal,
    Uniform,
    choice,
    loguniform,
    normal,
    uniform,
)

PRESETS: Mapping[str, Mapping[str, Distribution]] = MappingProxyType(
    {
        "lunar-lander": MappingProxyType(
            {
                # Gravity must lie between -12 and 0 without touching them; the others up to the ends of their range.
                "gravity": normal(-10, 1, clip=(-11.99, -0.01)),
                "enable_wind": choice([True, False]),
                "wind_power": uniform(0, 20),
                "turbulence_power": uniform(0, 2),
            }
        ),
    }
)
"""The presets of `parse_randomize`: parameters of an environment, with ranges that it accepts."""

_RANDOMIZE_EXAMPLE = (
    "gravity=uniform(-11, -9), gravity=normal(-10, 1, -11.99, -0.01) or enable_wind=choice(True, False)"
)
_SWEEP_EXAMPLE = "gravity=-11:-2:6 (six values from -11 to -2), wind_power=0,5,10 or enable_wind=True,False"


@dataclass(frozen=True)
class Sweep:
    """One constructor parameter and its values; each value is one scenario."""

    name: str
    values: tuple[Any, ...]

    def __str__(self) -> str:
        """Return the text that `parse_sweep` reads."""
        return f"{self.name}={','.join(map(repr, self.values))}"


def parse_randomize(texts: Sequence[str]) -> dict[str, Distribution]:
    """Read distributions, or the names of presets, for `make_vec(randomize=...)`.

    Args:
        texts: Each is `name=uniform(low, high)`, `name=loguniform(low, high)`, `name=normal(mean, std)`,
            `name=normal(mean, std, low, high)`, `name=choice(a, b, ...)`, or a preset of `PRESETS`. A parameter that is
            given explicitly replaces that of a preset, in any order.
    """
    if isinstance(texts, str):
        raise TypeError(f"parse_randomize() needs a list of texts, got the text {texts!r}: write [{texts!r}].")
    return parse_distributions(texts, PRESETS, _RANDOMIZE_EXAMPLE)


def parse_distributions(
    texts: Sequence[str], presets: Mapping[str, Mapping[str, Distribution]], example: str
) -> dict[str, Distribution]:
    """Read `name=distribution` and names of presets; what is written as `name=distribution` counts.

    Args:
        texts: What to read.
        presets: What a text without an equals sign may be: each name, and the distributions it stands for.
        example: What an error suggests.
    """
    written: dict[str, Distribution] = {}
    for text in texts:
        if "=" not in text:
            continue
        name, value = _split(text, example)
        if name in written:
            raise ValueError(f"{name} is given twice, as {written[name]} and by {text!r}: keep one of them.")
        written[name] = _distribution(text, value, example)
    chosen = [_preset(text.strip(), presets, example) for text in texts if "=" not in text]
    from_presets = {name: distribution for preset in chosen for name, distribution in preset.items()}
    return {**from_presets, **written}


def format_randomize(randomize: Mapping[str, Distribution]) -> dict[str, str]:
    """Write distributions as texts, by name; `parse_randomize` of "name=text" returns the distribution."""
    return {name: _formatted(name, distribution) for name, distribution in randomize.items()}


def parse_sweep(text: str) -> Sweep:
    """Read `name=start:stop:count` (evenly spaced values, both ends included) or `name=a,b,c` (any literals).

    If both ends are written as integers and all values are whole, the values are integers: a constructor may need them.
    """
    name, value = _split(text, _SWEEP_EXAMPLE)
    if ":" in value:
        return Sweep(name, _spaced(text, value))
    try:
        values = ast.literal_eval(f"[{value}]")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        values = None
    if not isinstance(values, list) or not values:
        _refuse(text, "expected start:stop:count or a list of values with commas between them", _SWEEP_EXAMPLE)
    return Sweep(name, tuple(values))


def _split(text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not value:
        _refuse(text, "expected a parameter's name, an equals sign and what it is to be", example)
    if not name.isidentifier() or keyword.iskeyword(name):
        _refuse(text, f"{name!r} cannot be the name of a constructor's parameter", example)
    return name, value


def _preset(name: str, presets: Mapping[str, Mapping[str, Distribution]], example: str) -> Mapping[str, Distribution]:
    if name not in presets:
        problem = (
            f"it is neither name=distribution nor a preset{did_you_mean(name, presets)}; "
            f"presets are {', '.join(presets)}"
        )
        _refuse(name, problem, example)
    return presets[name]


def _distribution(text: str, value: str, example: str) -> Distribution:
    try:
        call = ast.parse(value, mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        _refuse(text, f"{value!r} is no distribution", example)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        _refuse(text, f"{value!r} is no distribution", example)
    make = _MAKERS.get(call.func.id)
    if make is None:
        unknown = f"there is no distribution {call.func.id!r}{did_you_mean(call.func.id, _MAKERS)}"
        _refuse(text, f"{unknown}, only {', '.join(_MAKERS)}", example)
    try:
        arguments = [ast.literal_eval(argument) for argument in call.args]
        keywords = {str(entry.arg): ast.literal_eval(entry.value) for entry in call.keywords}
    except (ValueError, TypeError, MemoryError, RecursionError):
        _refuse(text, "arguments must be numbers, True, False, None or texts in quotes", example)
    try:
        return make(*arguments, **keywords)
    except (TypeError, ValueError) as error:
        _refuse(text, str(error).removeprefix("_read_"), example)


def _read_uniform(low: float, high: float) -> Uniform:
    return uniform(low, high)


def _read_loguniform(low: float, high: float) -> LogUniform:
    return loguniform(low, high)


def _read_normal(mean: float, std: float, *ends: float, clip: tuple[float, float] | None = None) -> Normal:
    if not ends:
        return normal(mean, std, clip)
    if len(ends) != 2 or clip is not None:
        raise TypeError("normal() takes a mean, a standard deviation and optionally a lowest and a highest value")
    return normal(mean, std, (ends[0], ends[1]))


def _read_choice(*options: Any) -> Choice:
    if len(options) == 1 and isinstance(options[0], (list, tuple)):
        return choice(options[0])
    return choice(options)


_MAKERS: Mapping[str, Callable[..., Distribution]] = {
    "uniform": _read_uniform,
    "loguniform": _read_loguniform,
    "normal": _read_normal,
    "choice": _read_choice,
}


def _formatted(name: str, distribution: Distribution) -> str:
    text = repr(distribution)
    try:
        same = parse_randomize([f"{name}={text}"]) == {name: distribution}
    except ValueError:
        same = False
    if not same:
        raise ValueError(
            f"randomize[{name!r}] is {text}, which cannot be written down and read again: choose among numbers, "
            "True, False, None and texts, as Python's own types."
        )
    return text


def _spaced(text: str, value: str) -> tuple[float, ...]:
    parts = value.split(":")
    ends = [read_number(part) for part in parts[:2]]
    count = int(parts[2]) if len(parts) == 3 and parts[2].strip().isdecimal() else 0
    if count < 2 or any(end is None for end in ends):
        _refuse(text, "expected start:stop:count, two numbers and how many values, at least 2", _SWEEP_EXAMPLE)
    start, stop = (end for end in ends if end is not None)
    # Rounded to what a reader would write: 0.3 and not 0.30000000000000004.
    inner = [float(f"{start + (stop - start) * i / (count - 1):.12g}") for i in range(1, count - 1)]
    values = [start, *inner, stop]
    if isinstance(start, int) and isinstance(stop, int) and all(float(v).is_integer() for v in values):
        return tuple(int(v) for v in values)
    return tuple(float(v) for v in values)


def read_number(text: str) -> int | float | None:
    """The finite number that a text says, an integer if it is written as one; None if it says none."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _refuse(text: str, problem: str, example: str) -> NoReturn:
    raise ValueError(f"cannot read {text!r}: {problem}. Write for example {example}.")
