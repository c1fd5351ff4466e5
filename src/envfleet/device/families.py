"""The families of functional environments: by what they are recognised, and which file adapts them.

Nothing here imports JAX: everything that is given to ``make_vec`` is looked at here first.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, final

from gymnasium.envs.registration import EnvSpec
from gymnasium.experimental.functional import FuncEnv

from envfleet._names import did_you_mean
from envfleet._optional import needs
from envfleet.device.functional import FunctionalEnv
from envfleet.errors import UnsupportedError

_GYMNASIUMS = ("gymnasium.envs.phys2d.", "gymnasium.envs.tabular.")
"""Where Gymnasium keeps environments that are made of a FuncEnv."""


@final
@dataclass(frozen=True)
class Family:
    """One library of functional environments.

    Attributes:
        name: What an id begins with, ``name:id``.
        adapter: The module with ``adapted(what, env_kwargs)``, and ``ids()`` where there are ids.
        base: Module and name of the class by which its environments are recognised.
        has_ids: Whether its environments can be made from ids.
    """

    name: str
    adapter: str
    base: tuple[str, str]
    has_ids: bool = True

    def knows(self, what: Any) -> bool:
        """Whether this is one of the family's environments, a class of such, or a pair of one and its parameters."""
        what = what[0] if isinstance(what, tuple) and what else what
        kind = what if isinstance(what, type) else type(what)
        return any((base.__module__, base.__name__) == self.base for base in kind.__mro__)


FAMILIES = (
    Family("gymnasium", "envfleet.device.func_env", (FuncEnv.__module__, FuncEnv.__name__), has_ids=False),
    Family("envfleet", "envfleet.device.own", (FunctionalEnv.__module__, FunctionalEnv.__name__), has_ids=False),
    Family("gymnax", "envfleet.device.gymnax", ("gymnax.environments.environment", "Environment")),
    Family("brax", "envfleet.device.brax", ("brax.envs.base", "Env")),
    Family("playground", "envfleet.device.playground", ("mujoco_playground._src.mjx_env", "MjxEnv")),
    Family("jumanji", "envfleet.device.jumanji", ("jumanji.env", "Environment")),
)


@final
@dataclass(frozen=True)
class FunctionalMaker:
    """The ``entry_point`` of a functional environment's spec.

    Attributes:
        family: Which adapter makes it.
        what: An id without the family, an environment, or a class.
    """

    family: Family
    what: Any = field(compare=False)
    reference: str = ""

    def adapted(self, env_kwargs: Mapping[str, Any]) -> FunctionalEnv:
        """The environment behind the interface that all families share."""
        with needs("jax"):
            importlib.import_module("jax")
        env: FunctionalEnv = importlib.import_module(self.family.adapter).adapted(self.what, env_kwargs)
        return env

    def __call__(self, **env_kwargs: Any) -> NoReturn:  # noqa: ARG002
        """Asked for a single Python environment, which there is none of."""
        raise UnsupportedError(
            f"{self.reference} is functional: its state and its steps are arrays of JAX, and there is no Python "
            "environment of it. Use backend='jax'."
        )


def functional_spec(what: Any) -> EnvSpec | None:
    """The spec of a functional environment; None of everything else."""
    if isinstance(what, str):
        prefix, colon, rest = what.partition(":")
        family = next((each for each in FAMILIES if each.has_ids and colon and each.name == prefix), None)
        return None if family is None else _spec(family, rest, what, _version(rest))
    family = next((each for each in FAMILIES if each.knows(what)), None)
    if family is None:
        return None
    made = what[0] if isinstance(what, tuple) else what
    name = (made if isinstance(made, type) else type(made)).__name__
    return _spec(family, what, f"{family.name}:{name}", None)


def _spec(family: Family, what: Any, reference: str, version: int | None) -> EnvSpec:
    env_id = reference if version is not None else f"{reference}-v0"
    maker = FunctionalMaker(family, what, reference)
    return EnvSpec(env_id, maker, order_enforce=False, disable_env_checker=True)


def _version(env_id: str) -> int | None:
    _, _, version = env_id.rpartition("-v")
    return int(version) if version.isdigit() else None


def refuse_unknown_id(env_id: str, known: list[str], family: str) -> None:
    """Refuses an id that a library does not have."""
    if env_id not in known:
        raise ValueError(
            f"{family} has no environment {env_id!r}{did_you_mean(env_id, known)}; it has {', '.join(known)}."
        )


def maker_of(spec: EnvSpec) -> FunctionalMaker | None:
    """What makes a spec's functional environment; None if it has none."""
    if isinstance(spec.entry_point, FunctionalMaker):
        return spec.entry_point
    return FunctionalMaker(FAMILIES[0], spec, spec.id) if str(spec.entry_point).startswith(_GYMNASIUMS) else None


def is_functional(spec: EnvSpec) -> bool:
    """Whether there is a functional environment for this spec."""
    return maker_of(spec) is not None


def is_only_functional(spec: EnvSpec) -> bool:
    """Whether there is no other environment for this spec than a functional one."""
    return isinstance(spec.entry_point, FunctionalMaker)


def functional_time_limit(spec: EnvSpec, env_kwargs: Mapping[str, Any]) -> int | None:
    """The steps after which a fleet of a functional environment truncates its episodes; None if it does not."""
    maker = maker_of(spec)
    if maker is None or "max_episode_steps" in env_kwargs:
        limit: int | None = env_kwargs.get("max_episode_steps")
        return None if limit == -1 else limit
    return maker.adapted({name: value for name, value in env_kwargs.items() if name != "render_mode"}).time_limit
