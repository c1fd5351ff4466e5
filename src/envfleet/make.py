"""``make_vec``: from an environment's id to a vector environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec, VectorizeMode

from envfleet import backends
from envfleet._single import EnvMaker, Wrapper, constructor_of, is_function, naming_missing_packages, spec_of
from envfleet._trial import TrialLostError, TrialRaisedError, measure_apart
from envfleet.backends import Backend, FleetRequest
from envfleet.errors import EnvRaisedError, UnsupportedError
from envfleet.native.own.environment import OwnEnvironment
from envfleet.plan import Plan, choose
from envfleet.randomize import Distribution, ParameterTable, check_parameter_names, draw_parameters, fresh_seed
from envfleet.redraw import ParameterStream
from envfleet.vector import FleetVectorEnv
from envfleet.vector.arguments import positive_integer
from envfleet.vector.fused_env import MAKE_ARGUMENTS
from envfleet.vector.runtime import usable_cores

_SAY_HOW_MANY = frozenset(("num_workers", "max_concurrency", "caller_works"))
"""Arguments of worker processes with which the user decides how many there are."""


@dataclass(frozen=True)
class _Request:
    """What make_vec was asked for, whether by arguments or by the spec of an earlier fleet."""

    num_envs: int
    backend: str
    vector_kwargs: dict[str, Any]
    wrappers: tuple[Wrapper, ...]
    randomize: Mapping[str, Distribution]
    randomize_seed: int | None
    randomize_on: str
    env_kwargs: dict[str, Any]


def make_vec(
    id: str | EnvSpec | EnvMaker | OwnEnvironment,  # noqa: A002  Gymnasium's name
    num_envs: int = 1,
    backend: str | VectorizeMode = "auto",
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrapper] | None = None,
    *,
    vectorization_mode: str | VectorizeMode | None = None,
    batch_size: int | None = None,
    randomize: Mapping[str, Distribution] | None = None,
    randomize_seed: int | None = None,
    randomize_on: str = "make",
    **env_kwargs: Any,
) -> FleetVectorEnv:
    """Makes ``num_envs`` copies of an environment behind one batched interface.

    Args:
        id: A registered id, MODULE:ID, FILE.py:CLASS, an EnvSpec (that of an earlier fleet makes the same fleet
            again), a function or class that makes one environment, or an environment from ``envfleet.native``.
        num_envs: How many.
        backend: "native" (compiled environments that give Gymnasium's numbers, see docs/native.md), "sync" (the
            caller's thread), "process" (worker processes), "ray" (Ray actors, on as many machines as there are, see
            docs/ray.md) or "auto": native if there is one, else sync or process, as a short measurement suggests, for
            which one more environment is made, stepped and closed in a process of its own. ``envs.plan`` says what was
            picked and why. ``envfleet.backends`` is the table of all of them, to which you can add your own.
        vector_kwargs: Further arguments of NativeVectorEnv, SyncVectorEnv, AsyncVectorEnv or RayVectorEnv, such as
            ``autoreset_mode``.
        wrappers: Applied to each environment, the first one innermost.
        vectorization_mode: Gymnasium's name for ``backend``: "sync" or "async". With "vector_entry_point"
            the environment's own vectorised implementation is made as Gymnasium makes it; it is then no
            FleetVectorEnv, whatever the type says.
        batch_size: How many results ``recv`` waits for, see docs/first_ready.md; by default those of all.
        randomize: Distributions of constructor parameters by name: ``{"gravity": uniform(-12, -8)}`` gives
            every environment a gravity of its own; ``envs.parameters`` shows them.
        randomize_seed: Fixes these parameters; by default fresh entropy.
        randomize_on: "make": they are drawn once, when the environments are made. "reset": every episode has its own,
            see docs/randomization.md; ``reset(seed=...)`` then fixes them too. Python environments are made again for
            that, which costs what making one costs; compiled ones are not.
        **env_kwargs: Passed to the environment's constructor (for ids, to ``gymnasium.make``).
    """
    spec = spec_of(id)
    asked = _Request(
        positive_integer("num_envs", num_envs),
        _checked_backend(backend, vectorization_mode),
        _with_batch_size(vector_kwargs, batch_size),
        tuple(wrappers or ()),
        dict(randomize or {}),
        randomize_seed,
        _checked_randomize_on(randomize_on),
        env_kwargs,
    )
    _refuse_given_and_randomised(asked)
    request = _merge_with_spec(spec, asked)
    if request.backend == VectorizeMode.VECTOR_ENTRY_POINT.value:
        return _gymnasiums_own(spec, request)
    with naming_missing_packages(spec):
        return _make_fleet(replace(spec, kwargs={}), request)


def _make_fleet(spec: EnvSpec, request: _Request) -> FleetVectorEnv:
    if spec.entry_point is None:
        raise gymnasium.error.Error(f"{spec.id} has no entry point to make single environments from.")
    parameters = _draw(spec, request)
    wanted = FleetRequest(
        spec,
        request.num_envs,
        request.env_kwargs,
        request.vector_kwargs,
        request.wrappers,
        parameters,
        _streams(request),
    )
    asked = backends.find(request.backend)
    backend, envs = _make_automatically(wanted) if asked is None else (asked, _make_with(asked, wanted))
    envs._drawn_once = parameters
    envs.spec = _spec_to_make_again(spec, request, backend)
    return envs


def _make_with(backend: Backend, wanted: FleetRequest) -> FleetVectorEnv:
    try:
        return backend.make(wanted)
    except EnvRaisedError:  # also if what the environment raised is an UnsupportedError
        raise
    except UnsupportedError as error:
        raise UnsupportedError(f"backend={backend.name!r} does not support {error}. Use 'sync' or 'process'.") from None


def _make_automatically(wanted: FleetRequest) -> tuple[Backend, FleetVectorEnv]:
    """A fleet of the backend that suits the spec; if that cannot make it, of the one that a measurement suggests.

    The plan says why the first one is not used. If it failed because the environment itself cannot be made, so will
    the second, with the proper error.
    """
    remarks = ""
    for backend in backends.suitable(wanted.spec):
        try:
            return backend, backend.make(wanted)
        except UnsupportedError as error:
            remarks += f" Not {backend.name}, which does not support {error}."
        except Exception as error:
            remarks += f" Not {backend.name}, which failed: {type(error).__name__}: {str(error).rstrip('.')}."
    plan = _plan(wanted)
    chosen = backends.find(plan.backend)
    assert chosen is not None
    envs = chosen.make(replace(wanted, vector_kwargs={**plan.vector_kwargs, **wanted.vector_kwargs}))
    envs.plan = plan.sentence + remarks
    return chosen, envs


def _plan(wanted: FleetRequest) -> Plan:
    decided = backends.decided_by(wanted.vector_kwargs)
    if decided is not None:
        backend, argument = decided
        plan = Plan(backend.name, f"{backend.name}: the argument {argument!r} needs {backend.where}.")
        counts_workers = backend.name == "process" and wanted.num_envs > 1
        return _with_workers(plan, wanted) if counts_workers else plan
    if wanted.num_envs == 1:
        return Plan("sync", "sync: with one environment there is nothing to run side by side.")
    try:
        return choose(wanted.num_envs, usable_cores(), measure_apart(wanted.env_fns()[0]))
    except TrialLostError as error:
        return Plan(
            "process", f"process: the environment {error} when it was measured, so it is kept out of your program."
        )
    except (TrialRaisedError, OSError) as error:
        # If the environment itself is broken, making the fleet raises the proper error.
        return Plan("sync", f"sync: the environment could not be measured ({error}).")


def _with_workers(plan: Plan, wanted: FleetRequest) -> Plan:
    """Adds the number of workers that suits environments which wait, unless the user has said how many there are."""
    if _SAY_HOW_MANY & wanted.vector_kwargs.keys():
        return plan
    try:
        measured = choose(wanted.num_envs, usable_cores(), measure_apart(wanted.env_fns()[0]))
    except (TrialLostError, TrialRaisedError, OSError):
        return plan
    workers = measured.vector_kwargs.get("num_workers")
    if workers is None or "caller_works" in measured.vector_kwargs:  # as many as there are cores, which is the default
        return plan
    reason = measured.sentence.partition(": ")[2]
    sentence = f"{plan.sentence.removesuffix('.')}, {workers} of them: {reason}"
    return Plan(plan.backend, sentence, {"num_workers": workers})


def _streams(request: _Request) -> tuple[ParameterStream, ...] | None:
    """Where each environment's parameters come from, if every episode has its own."""
    if not request.randomize or request.randomize_on != "reset":
        return None
    assert request.randomize_seed is not None
    return tuple(ParameterStream(request.randomize, request.randomize_seed, i) for i in range(request.num_envs))


def _checked_backend(backend: Any, vectorization_mode: Any) -> str:
    """What was asked for: the name of a backend, "auto", or Gymnasium's name for an environment's own vectorisation."""
    mode = VectorizeMode.VECTOR_ENTRY_POINT.value
    names = (*backends.spellings(), mode)
    chosen = set()
    for name, value in (("backend", backend), ("vectorization_mode", vectorization_mode)):
        value = value.value if isinstance(value, VectorizeMode) else value
        if value is None:
            continue
        if value not in names:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, names))}, got {value!r}.")
        found = backends.find(value)
        chosen.add(value if found is None else found.name)
    explicit = sorted(chosen - {backends.AUTO})
    if len(explicit) > 1:
        raise ValueError(f"backend={backend!r} and vectorization_mode={vectorization_mode!r} contradict each other.")
    return explicit[0] if explicit else backends.AUTO


def _merge_with_spec(spec: EnvSpec, asked: _Request) -> _Request:
    """A fleet's spec carries its own arguments among the environment's; contradictions are refused."""
    saved = dict(spec.kwargs)
    mode = saved.pop("vectorization_mode", None)
    backend = _checked_backend(mode, None) if mode is not None else None
    randomize = _agreed("randomize", asked.randomize, {}, saved.pop("randomize", None))
    seed = _agreed("randomize_seed", asked.randomize_seed, None, saved.pop("randomize_seed", None))
    return _Request(
        num_envs=_agreed("num_envs", asked.num_envs, 1, saved.pop("num_envs", None)),
        backend=_agreed("backend", asked.backend, "auto", backend),
        vector_kwargs={**saved.pop("vector_kwargs", {}), **asked.vector_kwargs},
        wrappers=_agreed("wrappers", asked.wrappers, (), saved.pop("wrappers", None)),
        randomize=randomize,
        randomize_seed=fresh_seed() if randomize and seed is None else seed,
        randomize_on=_agreed("randomize_on", asked.randomize_on, "make", saved.pop("randomize_on", None)),
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


def _with_batch_size(vector_kwargs: dict[str, Any] | None, batch_size: int | None) -> dict[str, Any]:
    given = dict(vector_kwargs or {})
    if batch_size is None:
        return given
    if given.get("batch_size", batch_size) != batch_size:
        raise TypeError(f"batch_size={batch_size!r} contradicts vector_kwargs, which say {given['batch_size']!r}.")
    return {**given, "batch_size": batch_size}


def _checked_randomize_on(when: Any) -> str:
    if when not in ("make", "reset"):
        raise ValueError(f"randomize_on must be 'make' (once) or 'reset' (for every episode), got {when!r}.")
    return str(when)


def _refuse_given_and_randomised(asked: _Request) -> None:
    twice = sorted(asked.randomize.keys() & asked.env_kwargs.keys())
    if twice:
        raise TypeError(f"{', '.join(twice)} cannot be both randomised and given as a constructor argument.")


def _draw(spec: EnvSpec, request: _Request) -> ParameterTable | None:
    if not request.randomize:
        return None
    made_by_gymnasium = () if is_function(spec) else MAKE_ARGUMENTS
    names = [name for name in request.randomize if name not in made_by_gymnasium]
    check_parameter_names(names, constructor_of(spec), spec.name if is_function(spec) else spec.id)
    assert request.randomize_seed is not None
    return draw_parameters(request.randomize, request.num_envs, request.randomize_seed)


def _spec_to_make_again(spec: EnvSpec, request: _Request, backend: Backend) -> EnvSpec:
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
        "randomize_on": None if request.randomize_on == "make" else request.randomize_on,
    }
    kwargs.update({name: value for name, value in optional.items() if value not in (None, {}, ())})
    return replace(spec, kwargs=kwargs)


def _gymnasiums_own(spec: EnvSpec, request: _Request) -> FleetVectorEnv:
    if request.randomize:
        raise TypeError("An environment's own vectorised implementation cannot be randomised: pick another backend.")
    envs = gymnasium.make_vec(
        replace(spec, kwargs={}),
        request.num_envs,
        VectorizeMode.VECTOR_ENTRY_POINT,
        vector_kwargs=request.vector_kwargs,
        wrappers=request.wrappers,  # type: ignore[arg-type]
        **request.env_kwargs,
    )
    return cast("FleetVectorEnv", envs)  # for the sake of everyone who asks for anything else
