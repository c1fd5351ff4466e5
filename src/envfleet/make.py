"""``make_vec``: from an environment's id to a vector environment."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec, VectorizeMode, _find_spec, load_env_creator
from gymnasium.vector import VectorEnv

from envfleet.plan import Plan, choose, measure_step
from envfleet.randomize import Distribution, ParameterTable, check_parameter_names, draw_parameters, fresh_seed
from envfleet.vector import AsyncVectorEnv, FleetVectorEnv, SyncVectorEnv
from envfleet.vector.member import AnyEnv
from envfleet.vector.process.launch import usable_cores
from envfleet.vector.shard import EnvFn

EnvMaker: TypeAlias = Callable[..., AnyEnv]
Wrapper: TypeAlias = Callable[[AnyEnv], AnyEnv]

_BACKENDS = {"auto": "auto", "sync": "sync", "process": "process", "async": "process"}
_GYMNASIUM_NAMES = {"sync": "sync", "process": "async"}
_MAKE_PARAMETERS = ("max_episode_steps", "disable_env_checker")
_PROCESS_ONLY = frozenset(
    ("shared_memory", "context", "daemon", "worker", "max_concurrency", "num_workers", "caller_works")
)


@dataclass(frozen=True)
class _Request:
    """What make_vec was asked for, whether by arguments or by the spec of an earlier fleet."""

    num_envs: int
    backend: str
    vector_kwargs: dict[str, Any]
    wrappers: tuple[Wrapper, ...]
    randomize: Mapping[str, Distribution]
    randomize_seed: int | None
    env_kwargs: dict[str, Any]


def make_vec(
    id: str | EnvSpec | EnvMaker,  # noqa: A002  Gymnasium's name
    num_envs: int = 1,
    backend: str | VectorizeMode = "auto",
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrapper] | None = None,
    *,
    vectorization_mode: str | VectorizeMode | None = None,
    randomize: Mapping[str, Distribution] | None = None,
    randomize_seed: int | None = None,
    **env_kwargs: Any,
) -> VectorEnv[Any, Any, Any]:
    """Makes ``num_envs`` copies of an environment behind one batched interface.

    Args:
        id: A registered id, an EnvSpec (that of an earlier fleet makes the same fleet again), or a function
            or class that makes one environment.
        num_envs: How many.
        backend: "sync" (the caller's thread), "process" (worker processes) or "auto", which measures the
            environment briefly and picks; ``envs.plan`` says what and why.
        vector_kwargs: Further arguments of SyncVectorEnv or AsyncVectorEnv, such as ``autoreset_mode``.
        wrappers: Applied to each environment, the first one innermost.
        vectorization_mode: Gymnasium's name for ``backend``: "sync" or "async". With "vector_entry_point"
            the environment's own vectorised implementation is made, as Gymnasium makes it.
        randomize: Distributions of constructor parameters by name: ``{"gravity": uniform(-12, -8)}`` gives
            every environment a gravity of its own; ``envs.parameters`` shows them.
        randomize_seed: Fixes these parameters; by default fresh entropy.
        **env_kwargs: Passed to the environment's constructor (for ids, to ``gymnasium.make``).
    """
    spec = _spec_of(id)
    request = _merge_with_spec(
        spec,
        _Request(
            num_envs,
            _checked_backend(backend, vectorization_mode),
            dict(vector_kwargs or {}),
            tuple(wrappers or ()),
            dict(randomize or {}),
            randomize_seed,
            env_kwargs,
        ),
    )
    if request.backend == VectorizeMode.VECTOR_ENTRY_POINT.value:
        return _gymnasiums_own(id, request)
    return _make_fleet(replace(spec, kwargs={}), request)


def _make_fleet(spec: EnvSpec, request: _Request) -> FleetVectorEnv:
    if spec.entry_point is None:
        raise gymnasium.error.Error(f"{spec.id} has no entry point to make single environments from.")
    parameters = _draw(spec, request)
    rows = [parameters.row(i) if parameters is not None else {} for i in range(request.num_envs)]
    env_fns: list[EnvFn] = [partial(_make_env, spec, {**request.env_kwargs, **row}, request.wrappers) for row in rows]
    plan = _plan(request, env_fns[0])
    vector_kwargs = {**plan.vector_kwargs, **request.vector_kwargs}
    engine = SyncVectorEnv if plan.backend == "sync" else AsyncVectorEnv
    envs: FleetVectorEnv = engine(env_fns, **vector_kwargs)
    envs.plan = plan.sentence or envs.plan
    envs.parameters = parameters
    seed = request.randomize_seed
    envs.spec = _spec_to_make_again(spec, replace(request, vector_kwargs=vector_kwargs, randomize_seed=seed), plan)
    return envs


def _make_env(spec: EnvSpec, kwargs: dict[str, Any], wrappers: Sequence[Wrapper]) -> AnyEnv:
    env = gymnasium.make(spec, **kwargs)
    for wrapper in wrappers:
        env = wrapper(env)
    return env


def _spec_of(what: Any) -> EnvSpec:
    if isinstance(what, EnvSpec):
        return copy.deepcopy(what)
    if isinstance(what, str):
        return copy.deepcopy(_find_spec(what))
    if callable(what):
        name = "".join(c for c in getattr(what, "__name__", type(what).__name__) if c.isalnum()) or "env"
        return EnvSpec(id=f"{name}-v0", entry_point=what, order_enforce=False, disable_env_checker=True)
    raise TypeError(
        f"make_vec needs a registered id, an EnvSpec or a function that makes one environment, got {what!r}."
    )


def _checked_backend(backend: Any, vectorization_mode: Any) -> str:
    mode = VectorizeMode.VECTOR_ENTRY_POINT.value
    names = {**_BACKENDS, mode: mode}
    chosen = []
    for name, value in (("backend", backend), ("vectorization_mode", vectorization_mode)):
        value = value.value if isinstance(value, VectorizeMode) else value
        if value is None:
            continue
        if value not in names:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, names))}, got {value!r}.")
        chosen.append(names[value])
    explicit = sorted(set(chosen) - {"auto"})
    if len(explicit) > 1:
        raise ValueError(f"backend={backend!r} and vectorization_mode={vectorization_mode!r} contradict each other.")
    return explicit[0] if explicit else "auto"


def _merge_with_spec(spec: EnvSpec, request: _Request) -> _Request:
    """A fleet's spec carries its own arguments among the environment's; they win, as in Gymnasium."""
    kept = dict(spec.kwargs)
    mode = kept.pop("vectorization_mode", None)
    merged = _Request(
        _checked_num_envs(kept.pop("num_envs", request.num_envs)),
        _checked_backend(mode, None) if mode is not None else request.backend,
        kept.pop("vector_kwargs", request.vector_kwargs),
        tuple(kept.pop("wrappers", request.wrappers)),
        kept.pop("randomize", request.randomize),
        kept.pop("randomize_seed", request.randomize_seed),
        {},
    )
    seed = fresh_seed() if merged.randomize and merged.randomize_seed is None else merged.randomize_seed
    return replace(merged, env_kwargs={**kept, **request.env_kwargs}, randomize_seed=seed)


def _checked_num_envs(num_envs: Any) -> int:
    if not isinstance(num_envs, int) or isinstance(num_envs, bool) or num_envs < 1:
        raise ValueError(f"num_envs must be a positive integer, got {num_envs!r}.")
    return num_envs


def _draw(spec: EnvSpec, request: _Request) -> ParameterTable | None:
    if not request.randomize:
        return None
    constructor = spec.entry_point if callable(spec.entry_point) else load_env_creator(str(spec.entry_point))
    names = [name for name in request.randomize if name not in _MAKE_PARAMETERS]
    check_parameter_names(names, constructor, spec.id)
    twice = sorted(request.randomize.keys() & request.env_kwargs.keys())
    if twice:
        raise TypeError(f"{', '.join(twice)} cannot be both randomised and given as a constructor argument.")
    assert request.randomize_seed is not None
    return draw_parameters(request.randomize, request.num_envs, request.randomize_seed)


def _plan(request: _Request, env_fn: EnvFn) -> Plan:
    if request.backend != "auto":
        return Plan(request.backend, "")
    wanted = sorted(_PROCESS_ONLY & request.vector_kwargs.keys())
    if wanted:
        return Plan("process", f"process: only worker processes know the argument {wanted[0]!r}.")
    cores = usable_cores()
    if request.num_envs == 1 or cores == 1:
        reason = "one environment" if request.num_envs == 1 else "one core"
        return Plan("sync", f"sync: with {reason} there is nothing to run side by side.")
    try:
        return choose(request.num_envs, cores, measure_step(env_fn))
    except Exception as error:
        # If the environment itself is broken, making the fleet raises the proper error.
        return Plan("sync", f"sync: the environment could not be measured ({type(error).__name__}: {error}).")


def _spec_to_make_again(spec: EnvSpec, request: _Request, plan: Plan) -> EnvSpec:
    """As Gymnasium lays it out, so that ``gymnasium.make_vec`` reads it too where it knows the arguments."""
    kwargs: dict[str, Any] = {
        **request.env_kwargs,
        "num_envs": request.num_envs,
        "vectorization_mode": _GYMNASIUM_NAMES[plan.backend],
    }
    optional = {
        "vector_kwargs": request.vector_kwargs,
        "wrappers": request.wrappers,
        "randomize": request.randomize,
        "randomize_seed": request.randomize_seed,
    }
    kwargs.update({name: value for name, value in optional.items() if value not in (None, {}, ())})
    return replace(spec, kwargs=kwargs)


def _gymnasiums_own(what: Any, request: _Request) -> VectorEnv[Any, Any, Any]:
    if request.randomize:
        raise TypeError("An environment's own vectorised implementation cannot be randomised: pick another backend.")
    return gymnasium.make_vec(
        what,
        request.num_envs,
        VectorizeMode.VECTOR_ENTRY_POINT,
        vector_kwargs=request.vector_kwargs,
        wrappers=request.wrappers,  # type: ignore[arg-type]
        **request.env_kwargs,
    )
