"""Makes single environments, from an id, a reference, a spec, a class or a function."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec, _find_spec, load_env_creator
from gymnasium.wrappers import TimeLimit

from envfleet._names import accepted_keywords, likely
from envfleet._references import NamedMaker, find, is_file, split
from envfleet.device.families import functional_spec
from envfleet.errors import EnvRaisedError
from envfleet.native import catalogue
from envfleet.native.own.environment import OwnEnvironment
from envfleet.redraw import ParameterStream, RedrawnEnv
from envfleet.vector.fused_env import AnyEnv

EnvMaker: TypeAlias = Callable[..., AnyEnv]
Wrapper: TypeAlias = Callable[[AnyEnv], AnyEnv]

_CALLABLE = "callable"
"""The namespace of specs that stand for a function. The function is called directly, not by gymnasium.make."""

_TIME_LIMIT = "max_episode_steps"


def is_function(spec: EnvSpec) -> bool:
    """Returns whether the spec stands for a class or function that was given instead of an id."""
    return spec.namespace == _CALLABLE


def spec_of(what: Any) -> EnvSpec:
    """Returns the spec of a registered id, a reference, a function or a class; a given spec is copied."""
    what = what.maker if isinstance(what, NamedMaker) else what
    functional = functional_spec(what)
    if functional is not None:
        return functional
    if isinstance(what, str) and split(what)[0]:
        what = find(what)
    if isinstance(what, EnvSpec):
        return copy.deepcopy(what)
    if isinstance(what, str):
        return copy.deepcopy(_registered(what))
    if isinstance(what, OwnEnvironment):
        return what.spec
    check_maker(what)
    name = "".join(c for c in getattr(what, "__name__", type(what).__name__) if c.isalnum()) or "env"
    return EnvSpec(f"{_CALLABLE}/{name}-v0", what, order_enforce=False, disable_env_checker=True)


def check_maker(what: Any) -> None:
    """Refuses what is neither an environment's class nor a function that may make one."""
    wanted = (
        "expected a registered id, MODULE:ID, FILE.py:CLASS, an EnvSpec, or a class or function that makes one "
        "environment"
    )
    if isinstance(what, gymnasium.Env):
        kind = type(what.unwrapped).__name__
        raise TypeError(
            f"{what} is an environment that is made already, and several copies are needed: give its class, {kind}, "
            "or a function that makes one, such as lambda: gymnasium.make(...)."
        )
    if isinstance(what, type) and not (hasattr(what, "step") and hasattr(what, "reset")):
        raise TypeError(f"{what.__name__} is a class without step() and reset(), so no gymnasium.Env: {wanted}.")
    if not callable(what):
        raise TypeError(f"{what!r} is no environment: {wanted}.")


def constructor_of(spec: EnvSpec) -> Callable[..., Any]:
    """Returns what has the arguments of an environment: the class or function by which it is made."""
    if spec.entry_point is None:
        raise gymnasium.error.Error(f"{spec.id} has no entry point to make single environments from.")
    if callable(spec.entry_point):
        return spec.entry_point
    try:
        return load_env_creator(spec.entry_point)
    except gymnasium.error.DependencyNotInstalled:
        compiled = catalogue.find(spec)  # which needs no such package, and has a function with the same arguments
        if compiled is None:
            raise
        return compiled.parameters


def _registered(env_id: str) -> EnvSpec:
    if env_id.startswith("ALE/"):
        _register_atari(env_id)
    try:
        return _find_spec(env_id)
    except gymnasium.error.UnregisteredEnv as error:
        raise type(error)(f"There is no environment {env_id!r}{_instead(env_id)}") from None


def _instead(env_id: str) -> str:
    """What to write instead of an id that does not exist, as the end of a sentence."""
    if is_file(env_id):
        return f": say which of its classes, as {env_id}:CLASS."
    if Path(f"{env_id}.py").is_file():
        return f", but a file {env_id}.py: say which of its classes, as {env_id}.py:CLASS."
    name, _, version = env_id.rpartition("-v")
    known = [one for one in gymnasium.registry if one.rpartition("-v")[0] == name] if version.isdigit() else []
    meant = known[-1] if known else likely(env_id, gymnasium.registry) or likely(env_id, _unversioned())
    if meant is None:
        return ": it is not registered. For one of your own write MODULE:ID or FILE.py:CLASS."
    return f"; did you mean {_unversioned().get(meant, meant)!r}?"


def _unversioned() -> dict[str, str]:
    """The latest id of every name without its version."""
    return {name.rpartition("-v")[0]: name for name in gymnasium.registry if name.rpartition("-v")[0]}


def _register_atari(env_id: str) -> None:
    try:
        import ale_py  # noqa: F401  importing it registers its games
    except ModuleNotFoundError as error:
        raise gymnasium.error.DependencyNotInstalled(
            f'{env_id} needs ale-py, which is not installed; run\n    pip install "envfleet[atari]"'
        ) from error


@contextmanager
def naming_missing_packages(spec: EnvSpec) -> Iterator[None]:
    """Says in one sentence which package an environment lacks, instead of a traceback through all that needs it."""
    try:
        yield
    except gymnasium.error.DependencyNotInstalled as error:
        raw = error.__cause__ if isinstance(error, EnvRaisedError) else error
        said = str(raw).strip()
        if str(spec.entry_point).startswith("gymnasium.envs."):
            missing = re.split("[,:]", said)[0]
            said = f'{spec.id} needs a package: {missing}; run\n    pip install "envfleet[envs]"'
        raise gymnasium.error.DependencyNotInstalled(said) from None


def make_env(
    spec: EnvSpec, env_kwargs: Mapping[str, Any], wrappers: Sequence[Wrapper], drawn: Mapping[str, Any]
) -> AnyEnv:
    """Makes an environment with all its arguments, including those drawn at random."""
    kwargs = {**env_kwargs, **drawn}
    env = _call(spec.entry_point, kwargs) if is_function(spec) else gymnasium.make(spec, **kwargs)
    for wrapper in wrappers:
        env = wrapper(env)
    return env


def time_limit_of(spec: EnvSpec, env_kwargs: Mapping[str, Any]) -> int | None:
    """Returns the number of steps after which Gymnasium's wrapper ends an episode; None if there is no such limit."""
    limit: int | None = env_kwargs.get(_TIME_LIMIT, spec.max_episode_steps)
    if limit is None or limit == -1 or (is_function(spec) and _takes_time_limit(spec.entry_point)):
        return None
    return limit


def _takes_time_limit(maker: Any) -> bool:
    """Returns whether a class or function takes a time limit itself, as one of its own arguments."""
    accepted = accepted_keywords(maker)
    return accepted is None or _TIME_LIMIT in accepted


def _call(maker: Any, kwargs: dict[str, Any]) -> AnyEnv:
    """Calls a class or function; a time limit that it does not take itself is put around the environment."""
    limit = kwargs.pop(_TIME_LIMIT) if _TIME_LIMIT in kwargs and not _takes_time_limit(maker) else None
    env = maker(**kwargs)
    if not all(hasattr(env, name) for name in ("reset", "step", "observation_space", "action_space")):
        name = getattr(maker, "__qualname__", type(maker).__name__)
        raise TypeError(f"{name} must make a gymnasium.Env, but it returned {env!r:.100}. Is its `return` missing?")
    return env if limit in (None, -1) else TimeLimit(env, limit)


def redrawn_env(
    spec: EnvSpec, env_kwargs: dict[str, Any], wrappers: Sequence[Wrapper], origin: ParameterStream
) -> RedrawnEnv:
    """Returns a function that makes one environment after another, each with the parameters of its episode."""
    # Gymnasium's checker looks at an environment's first steps only, so that the first one is enough.
    unchecked = {} if is_function(spec) else {"disable_env_checker": True}
    return RedrawnEnv(
        origin,
        partial(make_env, spec, env_kwargs, wrappers),
        partial(make_env, spec, {**unchecked, **env_kwargs}, wrappers),
    )
