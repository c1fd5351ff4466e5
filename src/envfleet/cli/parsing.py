"""Parses command lines with tyro, with additional rules for envfleet's own types."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from envfleet.cli.errors import UsageError
from envfleet.randomize import Distribution
from envfleet.scenarios import Sweep, format_randomize, parse_randomize, parse_sweep, read_number

EnvKwargs: TypeAlias = Mapping[str, Any]
"""Constructor arguments of an environment."""

Randomize: TypeAlias = Mapping[str, Distribution]
"""Parameters drawn at random."""

Sweeps: TypeAlias = tuple[Sweep, ...]
"""Parameters and the values of each."""

_Options = TypeVar("_Options")
_Value = TypeVar("_Value")
_LISTS = ("--env-kwargs", "--randomize", "--search", "--sweep")


def parse(options: type[_Options], command: str, argv: Sequence[str], description: str | None = None) -> _Options:
    """Read `options`, a dataclass, from a command's arguments; exit the program after a help text or an error."""
    _refuse_repeated_lists(argv)
    # Alone, because tyro's help is silent about positional arguments that were given.
    argv = ["--help"] if {"-h", "--help"} & set(argv) else argv
    return tyro.cli(options, prog=f"envfleet {command}", description=description, args=argv, registry=_registry())


def parse_known(options: type[_Options], command: str, argv: Sequence[str]) -> tuple[_Options, list[str]]:
    """Like `parse`, but unknown arguments are returned instead of refused."""
    return tyro.cli(options, prog=f"envfleet {command}", args=argv, registry=_registry(), return_unknown_args=True)


def parse_env_kwargs(texts: Sequence[str]) -> dict[str, Any]:
    """Read `name=value` texts. A value is a Python literal such as -9.8, True or [1, 2], otherwise a string."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"cannot read {text!r}: expected NAME=VALUE, such as gravity=-5 or enable_wind=True.")
        if name in values:
            raise ValueError(f"{name} is given twice, as {values[name]!r} and by {text!r}: keep one of them.")
        values[name] = _literal(value)
    return values


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _refuse_repeated_lists(argv: Sequence[str]) -> None:
    # The last one would count, and the others be forgotten without a word.
    given = [text.partition("=")[0].replace("_", "-") for text in argv if text.startswith("--")]
    for flag in _LISTS:
        if given.count(flag) > 1:
            raise UsageError(f"{flag} is given twice; put everything behind one: {flag} FIRST SECOND.")


def _registry() -> ConstructorRegistry:
    specs: list[tuple[Any, PrimitiveConstructorSpec[Any]]] = [
        (int, _number_spec()),
        (EnvKwargs, _list_spec("NAME=VALUE", parse_env_kwargs, lambda value: [f"{k}={v}" for k, v in value.items()])),
        (Randomize, _list_spec("NAME=DISTRIBUTION|PRESET", parse_randomize, _randomize_texts)),
        (Sweeps, _list_spec("NAME=START:STOP:COUNT", _parse_sweeps, lambda sweeps: [str(sweep) for sweep in sweeps])),
    ]
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        return next((spec for kind, spec in specs if info.type == kind), None)

    return registry


def _list_spec(
    metavar: str, read: Callable[[list[str]], _Value], write: Callable[[Any], list[str]]
) -> PrimitiveConstructorSpec[_Value]:
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"{metavar} ...",
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, (Mapping, tuple)),
        str_from_instance=write,
    )


def _number_spec() -> PrimitiveConstructorSpec[int]:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda texts: _whole_number(texts[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [f"{value:_}" if abs(value) >= 10_000 else f"{value}"],
    )


def _whole_number(text: str) -> int:
    """Read an integer; 300_000 and 3e5 are allowed, as people write numbers of steps."""
    number = read_number(text)
    if number is None or number != int(number):
        raise ValueError(f"expected a whole number, such as 300000, 300_000 or 3e5, got {text!r}.")
    return int(number)


def _parse_sweeps(texts: Sequence[str]) -> Sweeps:
    return tuple(parse_sweep(text) for text in texts)


def _randomize_texts(randomize: Randomize) -> list[str]:
    return [f"{name}={text}" for name, text in format_randomize(randomize).items()]
