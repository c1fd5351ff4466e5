"""Makes single environments, from an id, a spec or a function."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec, _find_spec

from envfleet.native.own.environment import OwnEnvironment
from envfleet.redraw import ParameterStream, RedrawnEnv
from envfleet.vector.fused_env import AnyEnv

EnvMaker: TypeAlias = Callable[..., AnyEnv]
Wrapper: TypeAlias = Callable[[AnyEnv], AnyEnv]

_CALLABLE = "callable"
"""The namespace of specs that stand for a function. The function is called directly, not by gymnasium.make."""


def is_function(spec: EnvSpec) -> bool:
    """Returns whether the spec stands for a function that was given instead of an id."""
    return spec.namespace == _CALLABLE


def spec_of(what: Any) -> EnvSpec:
    """Returns the spec of a registered id, of a function or of a class; a given spec is copied."""
    if isinstance(what, EnvSpec):
        return copy.deepcopy(what)
    if isinstance(what, str):
        if what.startswith("ALE/"):
            _register_atari(what)
        return copy.deepcopy(_find_spec(what))
    if isinstance(what, OwnEnvironment):
        return what.spec
    if callable(what):
        name = "".join(c for c in getattr(what, "__name__", type(what).__name__) if c.isalnum()) or "env"
        return EnvSpec(f"{_CALLABLE}/{name}-v0", what, order_enforce=False, disable_env_checker=True)
    raise TypeError(
        f"make_vec needs a registered id, an EnvSpec or a function that makes one environment, got {what!r}."
    )


def _register_atari(env_id: str) -> None:
    try:
        import ale_py  # noqa: F401  importing it registers its games
    except ModuleNotFoundError as error:
        raise gymnasium.error.DependencyNotInstalled(
            f'{env_id} needs ale-py, which is not installed; run\n    pip install "envfleet[atari]"'
        ) from error


def make_env(spec: EnvSpec, env_kwargs: dict[str, Any], wrappers: Sequence[Wrapper], drawn: dict[str, Any]) -> AnyEnv:
    """Makes an environment with all its arguments, including those drawn at random."""
    kwargs = {**env_kwargs, **drawn}
    if is_function(spec):
        assert callable(spec.entry_point)
        env: AnyEnv = spec.entry_point(**kwargs)
    else:
        env = gymnasium.make(spec, **kwargs)
    for wrapper in wrappers:
        env = wrapper(env)
    return env


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
