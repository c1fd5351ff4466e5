"""Names that do not exist: which one was meant, and a sentence for a function that is called with one."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound="type[Any]")

_ELSEWHERE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "batch_size": ("minibatch_size",),
        "env": ("env_id",),
        "learning_rate": ("actor_lr",),
        "lr": ("actor_lr", "learning_rate"),
        "n_epochs": ("epochs",),
        "n_steps": ("rollout_steps",),
        "timesteps": ("total_steps",),
        "verbose": ("progress",),
    }
)
"""What other libraries call some arguments that have another name here."""


def likely(name: str, known: Iterable[str], how_alike: float = 0.6) -> str | None:
    """Returns the known name that was probably meant, if there is one; upper and lower case count as the same.

    Args:
        name: What was given.
        known: What there is.
        how_alike: How alike both must be, from 0 to 1.
    """
    spellings = {one.lower(): one for one in known}
    named_elsewhere = [one for one in _ELSEWHERE.get(name, ()) if one in spellings]
    close = named_elsewhere or difflib.get_close_matches(name.lower(), spellings, n=1, cutoff=how_alike)
    return spellings[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns " (did you mean 'this'?)", or nothing if no known name is close."""
    meant = likely(name, known)
    return f" (did you mean {meant!r}?)" if meant else ""


def with_hints(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Returns unknown names, each with the one that was probably meant, as what follows "there is no"."""
    known = list(known)
    return " and no ".join(f"{name!r}{did_you_mean(name, known)}" for name in unknown)


def accepted_keywords(function: Callable[..., Any]) -> list[str] | None:
    """Returns the keywords that a callable accepts, in order; None if it accepts any, or if they are unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter.name for parameter in parameters if parameter.kind in by_keyword]


def explains_names(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorates a function: an argument that it does not have is refused with the name that was probably meant."""
    known = accepted_keywords(function) or []

    @functools.wraps(function)
    def checked(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        check_names(function.__name__, "argument", kwargs, known)
        return function(*args, **kwargs)

    return checked


def explains_settings(config: _Class) -> _Class:
    """Decorates a dataclass of settings: one that it does not have is refused with the one that was probably meant."""
    initialise = config.__init__
    known = [name for name in accepted_keywords(initialise) or [] if name != "self"]

    @functools.wraps(initialise)
    def checked(self: Any, *args: Any, **settings: Any) -> None:
        check_names(config.__name__, "setting", settings, known)
        initialise(self, *args, **settings)

    config.__init__ = checked
    return config


def check_names(owner: str, what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses names that are not known, with those that were probably meant."""
    known = list(known)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(f"{owner} has no {what} {with_hints(unknown, known)}; it has {', '.join(known)}.")
