"""What ``make_vec`` was asked for: its arguments checked, explained where they are wrong, and joined with a spec's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gymnasium.envs.registration import EnvSpec, VectorizeMode
from gymnasium.vector import AutoresetMode

from envfleet import backends
from envfleet._names import did_you_mean, likely
from envfleet._single import Wrapper, constructor_of, is_function
from envfleet.backends import Backend
from envfleet.errors import UnsupportedError
from envfleet.randomize import Distribution, fresh_seed
from envfleet.vector.arguments import one_of_two_names, positive_integer
from envfleet.vector.fused_env import MAKE_ARGUMENTS
from envfleet.vector.spaces import checked_mode

DEFAULT_RANDOMIZE_ON = "reset"
"""Also what training takes: every episode draws its own parameters, which is what domain randomisation means."""

OF_MAKE_VEC = ("num_envs", "backend", "vector_kwargs", "wrappers", "vectorization_mode", "randomize", "randomize_seed")
"""Arguments of ``make_vec`` that somebody may have misspelt, besides those of the vector environments."""

DIRECT = ("autoreset_mode", "copy", "first_ready", "num_workers", "on_failure", "step_timeout", "batch_size")
"""Arguments of vector environments that ``make_vec`` has too."""

_CLOSE_ENOUGH = 0.75
"""How alike a name must be, from 0 to 1, to be taken for a misspelt one."""


@dataclass(frozen=True)
class Request:
    """What make_vec was asked for, whether by arguments or by the spec of an earlier fleet."""

    num_envs: int
    backend: str
    vector_kwargs: dict[str, Any]
    wrappers: tuple[Wrapper, ...]
    randomize: Mapping[str, Distribution]
    randomize_seed: int | None
    randomize_on: str
    env_kwargs: dict[str, Any]


# -- arguments of the right kind ----------------------------------------------------------------------------


def checked_num_envs(num_envs: Any) -> int:
    """A positive integer; a name of a backend in its place is explained."""
    try:
        return positive_integer("num_envs", num_envs)
    except ValueError as error:
        if isinstance(num_envs, str) and num_envs in backends.spellings():
            raise ValueError(f"{error} Write make_vec(..., num_envs=8, backend={num_envs!r}).") from None
        raise


def checked_wrappers(wrappers: Any) -> tuple[Wrapper, ...]:
    """A sequence of functions that take an environment and return one."""
    if wrappers is None:
        return ()
    if callable(wrappers) or isinstance(wrappers, str) or not isinstance(wrappers, Sequence):
        name = getattr(wrappers, "__name__", repr(wrappers))
        raise TypeError(f"wrappers must be a list of functions that wrap an environment, got {name}: write [{name}].")
    for index, wrapper in enumerate(wrappers):
        if not callable(wrapper):
            raise TypeError(f"wrappers[{index}] must be a function that wraps an environment, got {wrapper!r}.")
    return tuple(wrappers)


def checked_randomize(randomize: Any) -> dict[str, Distribution]:
    """A dict of distributions; what they are is checked when they are drawn from."""
    if randomize is None:
        return {}
    if not isinstance(randomize, Mapping):
        raise TypeError(
            "randomize must be a dict from names of constructor arguments to distributions, such as "
            f"{{'gravity': envfleet.uniform(-12, -8)}}, got {randomize!r}."
        )
    return dict(randomize)


def checked_randomize_on(when: Any) -> str:
    """Refuses what is neither "make" nor "reset"."""
    if when not in ("make", "reset"):
        raise ValueError(f"randomize_on must be 'make' (once) or 'reset' (for every episode), got {when!r}.")
    return str(when)


def checked_backend(backend: Any, vectorization_mode: Any) -> str:
    """What was asked for: the name of a backend, "auto", or Gymnasium's name for an environment's own vectorisation."""
    mode = VectorizeMode.VECTOR_ENTRY_POINT.value
    names = (*backends.spellings(), mode)
    chosen = set()
    for name, value in (("backend", backend), ("vectorization_mode", vectorization_mode)):
        value = value.value if isinstance(value, VectorizeMode) else value
        if value is None:
            continue
        if value not in names:
            meant = did_you_mean(value, names) if isinstance(value, str) else ""
            raise ValueError(f"{name} must be one of {', '.join(map(repr, names))}, got {value!r}{meant}.")
        found = backends.find(value)
        chosen.add(value if found is None else found.name)
    explicit = sorted(chosen - {backends.AUTO})
    if len(explicit) > 1:
        raise ValueError(f"backend={backend!r} and vectorization_mode={vectorization_mode!r} contradict each other.")
    return explicit[0] if explicit else backends.AUTO


def refuse_given_and_randomised(asked: Request) -> None:
    """Refuses constructor arguments that were given and are to be drawn too."""
    twice = sorted(asked.randomize.keys() & asked.env_kwargs.keys())
    if twice:
        raise TypeError(f"{', '.join(twice)} cannot be both randomised and given as a constructor argument.")


# -- arguments of the vector environment --------------------------------------------------------------------


def joined_vector_kwargs(vector_kwargs: Any, direct: Mapping[str, Any]) -> dict[str, Any]:
    """``vector_kwargs`` with the arguments of ``make_vec`` that go the same way; what differs is refused."""
    if vector_kwargs is not None and not isinstance(vector_kwargs, Mapping):
        raise TypeError(
            "vector_kwargs must be a dict of arguments of the vector environment, such as {'copy': False}, got "
            f"{vector_kwargs!r}."
        )
    given = {name: _spelt_as_gymnasium(name, value) for name, value in (vector_kwargs or {}).items()}
    for name, value in direct.items():
        value = _spelt_as_gymnasium(name, value)
        if not _same(name, given.get(name, value), value):
            raise TypeError(f"{name}={value!r} contradicts vector_kwargs, which say {given[name]!r}.")
        given[name] = value
    one_of_two_names(given.get("first_ready"), given.get("batch_size"))
    return given


def _spelt_as_gymnasium(name: str, value: Any) -> Any:
    """An autoreset mode in a spelling that Gymnasium does not read becomes the mode itself."""
    if name != "autoreset_mode" or value in [mode.value for mode in AutoresetMode]:
        return value
    return checked_mode(value)


def _same(name: str, one: Any, other: Any) -> bool:
    return bool(checked_mode(one) is checked_mode(other) if name == "autoreset_mode" else one == other)


def check_vector_kwargs(backend: Backend | None, names: Iterable[str]) -> None:
    """Refuses what this backend does not take, or, if none was chosen, what no backend takes."""
    if backend is not None and not backend.takes:
        return
    everywhere = backends.options()
    known: Iterable[str] = everywhere if backend is None else backend.takes
    for name in names:
        if name in known or (backend is None and backends.decided_by([name])):
            continue
        if backend is not None and name in everywhere:
            takers = " or ".join(repr(taker) for taker in everywhere[name])
            raise UnsupportedError(
                f"backend={backend.name!r} does not support the vector_kwargs argument {name!r}. Use {takers}."
            )
        raise TypeError(
            f"vector_kwargs has no argument {name!r}{did_you_mean(str(name), known)}; it takes {', '.join(known)}."
        )


# -- arguments of the environment ---------------------------------------------------------------------------


def shared_out(spec: EnvSpec, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments of ``make_vec`` for the fleet, and those that the environment's constructor has itself.

    An environment may have an argument called ``num_workers``. Then it is the environment's.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    own = {name: value for name, value in given.items() if _constructor_names(spec, name)}
    return {name: value for name, value in given.items() if name not in own}, own


def check_env_kwargs(spec: EnvSpec, env_kwargs: Mapping[str, Any]) -> None:
    """Refuses names that were probably meant for ``make_vec`` and that the environment does not take.

    The constructor is looked at only if a name looks like one of ours: it may be slow to import. All else is left to
    the environment.
    """
    options = backends.options()
    for name, value in env_kwargs.items():
        ours = likely(name, (*OF_MAKE_VEC, *DIRECT), _CLOSE_ENOUGH) or likely(name, options, _CLOSE_ENOUGH)
        meant = name if name in options else ours
        if meant is None or name in (*spec.kwargs, *MAKE_ARGUMENTS) or _constructor_accepts(spec, name):
            continue
        hint = "" if meant == name else f" (did you mean {meant!r}?)"
        if meant in options and meant not in DIRECT:
            hint += f"; write vector_kwargs={{{meant!r}: {value!r}}}"
        env = spec.name if is_function(spec) else spec.id
        raise TypeError(f"Neither make_vec nor the constructor of {env} has an argument {name!r}{hint}.")


def _constructor(spec: EnvSpec) -> Callable[..., Any] | None:
    """What makes one environment; None if it cannot be imported, which making it will explain."""
    try:
        return constructor_of(spec)
    except Exception:
        return None


def _parameters(constructor: Callable[..., Any] | None) -> Mapping[str, inspect.Parameter]:
    try:
        return {} if constructor is None else inspect.signature(constructor).parameters
    except ValueError:
        return {}


def _constructor_names(spec: EnvSpec, name: str) -> bool:
    """Whether the constructor has an argument of this name."""
    if not is_function(spec) and str(spec.entry_point).startswith("gymnasium.envs."):
        return False  # Gymnasium's own have none, and some need libraries that their compiled counterparts do not
    found = _parameters(_constructor(spec)).get(name)
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)


def _constructor_accepts(spec: EnvSpec, name: str) -> bool:
    """Whether the constructor can be given this name, as far as can be known."""
    parameters = _parameters(_constructor(spec))
    return not parameters or name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


# -- the spec of an earlier fleet ---------------------------------------------------------------------------


def joined_with_spec(spec: EnvSpec, asked: Request) -> Request:
    """A fleet's spec carries its own arguments among the environment's; contradictions are refused."""
    saved = dict(spec.kwargs)
    mode = saved.pop("vectorization_mode", None)
    backend = checked_backend(mode, None) if mode is not None else None
    saved_on = saved.pop("randomize_on", "make" if "randomize" in saved else None)  # older specs leave "make" out
    randomize = _agreed("randomize", asked.randomize, {}, saved.pop("randomize", None))
    seed = _agreed("randomize_seed", asked.randomize_seed, None, saved.pop("randomize_seed", None))
    return Request(
        num_envs=_agreed("num_envs", asked.num_envs, 1, saved.pop("num_envs", None)),
        backend=_agreed("backend", asked.backend, "auto", backend),
        vector_kwargs={**saved.pop("vector_kwargs", {}), **asked.vector_kwargs},
        wrappers=_agreed("wrappers", asked.wrappers, (), saved.pop("wrappers", None)),
        randomize=randomize,
        randomize_seed=fresh_seed() if randomize and seed is None else seed,
        randomize_on=_agreed("randomize_on", asked.randomize_on, DEFAULT_RANDOMIZE_ON, saved_on),
        env_kwargs={**saved, **asked.env_kwargs},
    )


def _agreed(name: str, asked: Any, default: Any, saved: Any) -> Any:
    """What the caller asked for, or what the spec says where the caller asked for nothing."""
    if saved is None:
        return asked
    saved = tuple(saved) if isinstance(saved, list) else saved
    if asked not in (default, saved):
        raise ValueError(f"{name}={asked!r} contradicts the spec, which says {saved!r}: change spec.kwargs instead.")
    return saved


def spec_to_make_again(spec: EnvSpec, request: Request, backend: Backend) -> EnvSpec:
    """As Gymnasium lays it out, so that ``gymnasium.make_vec`` reads it too where it knows the arguments."""
    kwargs: dict[str, Any] = {
        **request.env_kwargs,
        "num_envs": request.num_envs,
        "vectorization_mode": backend.name_in_specs,
    }
    optional = {
        "vector_kwargs": request.vector_kwargs,
        "wrappers": request.wrappers,
        "randomize": request.randomize,
        "randomize_seed": request.randomize_seed,
        "randomize_on": request.randomize_on if request.randomize else None,
    }
    kwargs.update({name: value for name, value in optional.items() if value not in (None, {}, ())})
    return replace(spec, kwargs=kwargs)
