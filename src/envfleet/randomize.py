"""Domain randomisation: every environment of a fleet gets its own constructor parameters.

    make_vec("LunarLander-v3", 8, randomize={"gravity": normal(-10, 1, clip=(-11.99, -0.01)),
                                             "enable_wind": choice([True, False])})

The value of parameter NAME in environment i depends only on (seed, i, NAME). No other value changes when you add a
parameter, add an environment or change the backend.
"""

from __future__ import annotations

import math
import numbers
import operator
import secrets
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from envfleet._names import accepted_keywords, with_hints

_HEAD_ROWS, _TAIL_ROWS = 10, 5
_CELL_WIDTH = 24


class Distribution(ABC):
    """The distribution of one parameter."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of a column of samples: float64, unless a distribution says otherwise."""
        return np.dtype(np.float64)

    @abstractmethod
    def cells(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Draw `count` values, encoded as numbers that `value` decodes: float64[count]."""

    @abstractmethod
    def value(self, cell: float) -> Any:
        """Decode one number of `cells` to the value for the environment's constructor."""

    def sample(self, rng: np.random.Generator) -> Any:
        """Draw one value."""
        return self.value(self.cells(rng, 1).item())


@dataclass(frozen=True, repr=False)
class Uniform(Distribution):
    """Floats distributed uniformly between `low` and `high`; made by `uniform()`."""

    low: float
    high: float

    def cells(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """The values themselves, `low <= value <= high`."""
        # Two operations: a compiler may fuse the multiply-add inside NumPy's own uniform() and so give another
        # last digit on another processor. The minimum catches a rounding above `high`.
        return np.minimum(self.high, self.low + (self.high - self.low) * rng.random(count))

    def value(self, cell: float) -> float:
        """A Python float."""
        return cell

    def __repr__(self) -> str:
        return f"uniform({_number(self.low)}, {_number(self.high)})"


@dataclass(frozen=True, repr=False)
class LogUniform(Distribution):
    """Positive floats whose logarithm is distributed uniformly; made by `loguniform()`."""

    low: float
    high: float

    def cells(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """The values themselves, `low <= value <= high`."""
        first, last = math.log(self.low), math.log(self.high)
        # Rounding may lead past an end.
        return np.clip(np.exp(first + (last - first) * rng.random(count)), self.low, self.high)

    def value(self, cell: float) -> float:
        """A Python float."""
        return cell

    def __repr__(self) -> str:
        return f"loguniform({_number(self.low)}, {_number(self.high)})"


@dataclass(frozen=True, repr=False)
class Normal(Distribution):
    """Normally distributed floats, optionally clipped to `clip`; made by `normal()`."""

    mean: float
    std: float
    clip: tuple[float, float] | None = None

    def cells(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """The values themselves; a value outside `clip` is moved to its nearer end."""
        values = self.mean + self.std * rng.standard_normal(count)
        return values if self.clip is None else np.clip(values, *self.clip)

    def value(self, cell: float) -> float:
        """A Python float."""
        return cell

    def __repr__(self) -> str:
        clip = "" if self.clip is None else f", clip=({_number(self.clip[0])}, {_number(self.clip[1])})"
        return f"normal({_number(self.mean)}, {_number(self.std)}{clip})"


@dataclass(frozen=True, repr=False)
class Choice(Distribution):
    """One of `options`, each equally likely; made by `choice()`."""

    options: tuple[Any, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """bool, int64 or float64 if every option has exactly this type, otherwise object."""
        kinds = {type(option) for option in self.options}
        if kinds == {bool}:
            return np.dtype(np.bool_)
        if kinds == {float}:
            return np.dtype(np.float64)
        if kinds == {int} and all(-(2**63) <= option < 2**63 for option in self.options):
            return np.dtype(np.int64)
        return np.dtype(object)

    def cells(self, rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """The indices of the options drawn."""
        return rng.integers(len(self.options), size=count).astype(np.float64)

    def value(self, cell: float) -> Any:
        """The option itself, so True stays True and None stays None."""
        return self.options[int(cell)]

    def __repr__(self) -> str:
        return f"choice({list(self.options)!r})"


def uniform(low: float, high: float) -> Uniform:
    """Draw a parameter uniformly between `low` and `high` (one Python float per environment)."""
    distribution = Uniform(_finite("uniform()", "low", low), _finite("uniform()", "high", high))
    if distribution.low > distribution.high:
        raise ValueError(f"uniform() needs low <= high, got low={low!r} and high={high!r}; swap them?")
    if math.isinf(distribution.high - distribution.low):
        raise ValueError(f"uniform() needs a range that a float can hold, got low={low!r} and high={high!r}")
    return distribution


def loguniform(low: float, high: float) -> LogUniform:
    """Draw a positive parameter between `low` and `high`, each order of magnitude equally likely.

    The logarithm is distributed uniformly. Use it where 0.001 differs from 0.01 as much as 0.01 does from 0.1.
    """
    distribution = LogUniform(_finite("loguniform()", "low", low), _finite("loguniform()", "high", high))
    if distribution.low <= 0:
        raise ValueError(f"loguniform() needs low > 0, got low={low!r}; for a range with 0 in it use uniform()")
    if distribution.low > distribution.high:
        raise ValueError(f"loguniform() needs low <= high, got low={low!r} and high={high!r}; swap them?")
    return distribution


def normal(mean: float, std: float, clip: tuple[float, float] | None = None) -> Normal:
    """Draw a parameter around `mean` with standard deviation `std` (one Python float per environment).

    Args:
        mean: Mean of the normal distribution.
        std: Standard deviation, zero or more.
        clip: `(low, high)`; values outside are moved to the nearer end. None does not limit them.
    """
    std_value = _finite("normal()", "std", std)
    if std_value < 0:
        raise ValueError(f"normal() needs a standard deviation of zero or more, got std={std!r}")
    return Normal(_finite("normal()", "mean", mean), std_value, None if clip is None else _checked_clip(clip))


def choice(options: Sequence[Any] | npt.NDArray[Any]) -> Choice:
    """Draw a parameter from `options`, each equally likely.

    Args:
        options: A list, tuple, range or one-dimensional array with at least one entry. The chosen option is
            passed to the environment unchanged; entries of an array become plain Python values.
    """
    if isinstance(options, np.ndarray) and options.ndim == 1:
        options = options.tolist()
    if isinstance(options, (str, bytes)) or not isinstance(options, Sequence):
        raise TypeError(
            f"choice() needs its options in a fixed order, as a list or tuple, got {_described(options)}; "
            "for a set or a dict write choice(sorted(...)), for one value pass it as an ordinary keyword"
        )
    if len(options) == 0:
        raise ValueError("choice() needs at least one option, got none")
    return Choice(tuple(options))


class ParameterTable(Mapping[str, npt.NDArray[Any]]):
    """The parameters of each environment: a mapping from names to read-only columns.

    `table["gravity"]` is an array of shape (num_envs,), `table.row(3)` holds the constructor keywords of
    environment 3, and `print(table)` shows all values. Two tables are equal if all their values are equal.

    Args:
        columns: One array of shape (num_envs,) per parameter; copied.
        num_envs: The number of rows; a table without parameters has rows too.
    """

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]], num_envs: int) -> None:
        self.num_envs = num_envs
        self._columns = {name: _frozen_copy(column) for name, column in columns.items()}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._columns:
            raise KeyError(f"no parameter {name!r} was randomised; there is {', '.join(self) or 'none'}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def row(self, index: int) -> dict[str, Any]:
        """The constructor keywords of environment `index`, as plain Python values."""
        index = operator.index(index)
        if not 0 <= index < self.num_envs:
            raise IndexError(f"there are environments 0 to {self.num_envs - 1}, got {index}")
        return {name: _plain(column, index) for name, column in self._columns.items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ParameterTable):
            return NotImplemented
        return self.num_envs == other.num_envs and self._lists() == other._lists()

    def _lists(self) -> dict[str, list[Any]]:
        return {name: column.tolist() for name, column in self._columns.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickled arrays are writeable again; going through the constructor freezes them.
        return ParameterTable, (self._columns, self.num_envs)

    def __repr__(self) -> str:
        if not self._columns:
            return f"no randomised parameters, {self.num_envs} environments"
        lines = [["env", *self._columns]]
        for index in _shown_rows(self.num_envs):
            if index is None:
                lines.append(["..."] * len(lines[0]))
            else:
                lines.append([str(index), *(_cell(value) for value in self.row(index).values())])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = [" | ".join(map(str.rjust, line, widths)) for line in lines]
        return "\n".join([texts[0], "-+-".join("-" * width for width in widths), *texts[1:]])


def draw_parameters(randomize: Mapping[str, Distribution], num_envs: int, seed: int) -> ParameterTable:
    """Draw the parameters of every environment.

    Args:
        randomize: Maps constructor parameters to distributions, made by `uniform()`, `loguniform()`, `normal()` or
            `choice()`.
        num_envs: The number of environments, one or more.
        seed: Zero or more. The same seed gives environment i the same values, whatever the other parameters
            and the number of environments are.
    """
    num_envs = _integer("num_envs", num_envs, at_least=1)
    seed = _integer("randomize_seed", seed, at_least=0)
    if not isinstance(randomize, Mapping):
        raise TypeError(
            "randomize= needs a dict of parameter name to uniform(), loguniform(), normal() or choice(), "
            f"got {_described(randomize)}"
        )
    for name, distribution in randomize.items():
        _check_entry(name, distribution)
    columns = {}
    for name, distribution in randomize.items():
        column = np.empty(num_envs, dtype=distribution.dtype)
        for index in range(num_envs):
            column[index] = distribution.sample(generator(seed, (index,), name))
        columns[name] = column
    return ParameterTable(columns, num_envs)


def check_parameter_names(names: Iterable[str], constructor: Callable[..., Any], env_id: str) -> None:
    """Refuse parameter names that an environment's constructor does not accept.

    Args:
        names: The names to be passed as keywords.
        constructor: A class, function, `functools.partial` or other callable. If it takes `**kwargs`, or if its
            signature is unknown, every name is accepted.
        env_id: The name of the environment in the error.

    Raises:
        TypeError: with the unknown names, a likely spelling for each, and all accepted names.
    """
    accepted = accepted_keywords(constructor)
    if accepted is None:
        return
    unknown = [name for name in names if name not in accepted]
    if unknown:
        raise TypeError(
            f"{env_id} has no parameter {with_hints(unknown, accepted)}; "
            f"its constructor accepts {', '.join(accepted) if accepted else 'no parameters at all'}"
        )


def fresh_seed() -> int:
    """Return a seed from the operating system's entropy: 0 <= seed < 2**63, so it fits into an int64."""
    return secrets.randbits(63)


def generator(seed: int, key: tuple[int, ...], name: str) -> np.random.Generator:
    """Return the random generator of one parameter; any other seed, key or name gives an independent one."""
    # crc32 because Python's own hash() of a string differs from process to process; PCG64 by name because
    # NumPy may change what default_rng() picks.
    key = (*key, zlib.crc32(name.encode()))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def _check_entry(name: object, distribution: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"randomize= needs parameter names as strings, got {_described(name)}")
    if isinstance(distribution, Distribution):
        return
    if isinstance(distribution, (list, tuple)):
        advice = f"to pick one of them write choice({list(distribution)!r})"
    else:
        advice = "to give every environment the same value pass it as an ordinary keyword instead"
    raise TypeError(
        f"randomize[{name!r}] needs uniform(), loguniform(), normal() or choice(), "
        f"got {_described(distribution)}; {advice}"
    )


def _checked_clip(clip: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(clip, Sequence) or isinstance(clip, str) or len(clip) != 2:
        raise TypeError(f"normal() needs clip=(low, high), got {_described(clip)}")
    low, high = (_finite("normal()", "both ends of clip", end) for end in clip)
    if low > high:
        raise ValueError(f"normal() needs clip=(low, high) with low <= high, got {clip!r}; swap them?")
    return low, high


def _finite(function: str, name: str, value: object) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{function} needs a number for {name}, got {_described(value)}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{function} needs a finite number for {name}, got {value!r}")
    return number


def _integer(name: str, value: object, at_least: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {_described(value)}")
    if value < at_least:
        raise ValueError(f"{name} must be {at_least} or more, got {value}")
    return int(value)


def _described(value: object) -> str:
    return f"{_cell(value)} ({type(value).__name__})"


def _number(value: float) -> str:
    text = repr(value)
    return text if text == "-0.0" else text.removesuffix(".0")  # "-0" would be read back as the integer 0


def _plain(column: npt.NDArray[Any], index: int) -> Any:
    value = column[index]
    return value if column.dtype == object else value.item()


def _frozen_copy(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    column = column.copy()
    column.flags.writeable = False
    return column


def _cell(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(repr(value).split())
    return text if len(text) <= _CELL_WIDTH else text[: _CELL_WIDTH - 3] + "..."


def _shown_rows(num_envs: int) -> list[int | None]:
    """Return the rows that a printed table shows; None stands for rows that are left out."""
    if num_envs <= _HEAD_ROWS + _TAIL_ROWS + 1:
        return list(range(num_envs))
    return [*range(_HEAD_ROWS), None, *range(num_envs - _TAIL_ROWS, num_envs)]
