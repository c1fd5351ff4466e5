"""``make_vec``: from an environment's id to a vector environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

import gymnasium
from gymnasium.envs.registration import EnvSpec, VectorizeMode
from gymnasium.experimental.functional import FuncEnv
from gymnasium.vector import AutoresetMode

from envfleet import _fleet_arguments as arguments
from envfleet import backends
from envfleet._fleet_arguments import Request
from envfleet._single import EnvMaker, Wrapper, constructor_of, is_function, naming_missing_packages, spec_of
from envfleet._trial import TrialLostError, TrialRaisedError, measure_apart
from envfleet.backends import Backend, FleetRequest, RegisteredBackend
from envfleet.errors import EnvRaisedError, UnsupportedError
from envfleet.native.env import NativeVectorEnv
from envfleet.native.own.environment import OwnEnvironment
from envfleet.plan import Plan, choose
from envfleet.randomize import Distribution, ParameterTable, check_parameter_names, draw_parameters
from envfleet.redraw import ParameterStream
from envfleet.vector import AsyncVectorEnv, FleetVectorEnv, RayVectorEnv, SyncVectorEnv
from envfleet.vector.failures import OnFailure
from envfleet.vector.fused_env import MAKE_ARGUMENTS
from envfleet.vector.runtime import usable_cores

if TYPE_CHECKING:
    from envfleet.device.env import JaxVectorEnv

EnvReference: TypeAlias = str | EnvSpec | EnvMaker | OwnEnvironment | FuncEnv[Any, Any, Any, Any, Any, Any, Any]
"""What ``make_vec`` makes copies of."""

VectorizationMode: TypeAlias = Literal["sync", "async", "vector_entry_point"] | VectorizeMode
"""Gymnasium's names for backends."""

_SAY_HOW_MANY = frozenset(("num_workers", "max_concurrency", "caller_works"))
"""Arguments of worker processes with which the user decides how many there are."""


@overload
def make_vec(
    id: EnvReference,
    num_envs: int = ...,
    backend: Literal["auto"] | RegisteredBackend | VectorizeMode = ...,
    vector_kwargs: Mapping[str, Any] | None = ...,
    wrappers: Sequence[Wrapper] | None = ...,
    *,
    vectorization_mode: VectorizationMode | None = ...,
    autoreset_mode: str | AutoresetMode | None = ...,
    copy: bool | None = ...,
    first_ready: int | None = ...,
    num_workers: int | None = ...,
    on_failure: OnFailure | None = ...,
    step_timeout: float | None = ...,
    batch_size: int | None = ...,
    randomize: Mapping[str, Distribution] | None = ...,
    randomize_seed: int | None = ...,
    randomize_on: Literal["reset", "make"] = ...,
    **env_kwargs: Any,
) -> FleetVectorEnv: ...


@overload
def make_vec(
    id: EnvReference,
    num_envs: int = ...,
    backend: Literal["native"] = ...,
    vector_kwargs: Mapping[str, Any] | None = ...,
    wrappers: Sequence[Wrapper] | None = ...,
    *,
    vectorization_mode: VectorizationMode | None = ...,
    autoreset_mode: str | AutoresetMode | None = ...,
    copy: bool | None = ...,
    first_ready: int | None = ...,
    num_workers: int | None = ...,
    on_failure: OnFailure | None = ...,
    step_timeout: float | None = ...,
    batch_size: int | None = ...,
    randomize: Mapping[str, Distribution] | None = ...,
    randomize_seed: int | None = ...,
    randomize_on: Literal["reset", "make"] = ...,
    **env_kwargs: Any,
) -> NativeVectorEnv: ...


@overload
def make_vec(
    id: EnvReference,
    num_envs: int = ...,
    backend: Literal["sync"] = ...,
    vector_kwargs: Mapping[str, Any] | None = ...,
    wrappers: Sequence[Wrapper] | None = ...,
    *,
    vectorization_mode: VectorizationMode | None = ...,
    autoreset_mode: str | AutoresetMode | None = ...,
    copy: bool | None = ...,
    first_ready: int | None = ...,
    num_workers: int | None = ...,
    on_failure: OnFailure | None = ...,
    step_timeout: float | None = ...,
    batch_size: int | None = ...,
    randomize: Mapping[str, Distribution] | None = ...,
    randomize_seed: int | None = ...,
    randomize_on: Literal["reset", "make"] = ...,
    **env_kwargs: Any,
) -> SyncVectorEnv: ...


@overload
def make_vec(
    id: EnvReference,
    num_envs: int = ...,
    backend: Literal["process", "async"] = ...,
    vector_kwargs: Mapping[str, Any] | None = ...,
    wrappers: Sequence[Wrapper] | None = ...,
    *,
    vectorization_mode: VectorizationMode | None = ...,
    autoreset_mode: str | AutoresetMode | None = ...,
    copy: bool | None = ...,
    first_ready: int | None = ...,
    num_workers: int | None = ...,
    on_failure: OnFailure | None = ...,
    step_timeout: float | None = ...,
    batch_size: int | None = ...,
    randomize: Mapping[str, Distribution] | None = ...,
    randomize_seed: int | None = ...,
    randomize_on: Literal["reset", "make"] = ...,
    **env_kwargs: Any,
) -> AsyncVectorEnv: ...


@overload
def make_vec(
    id: EnvReference,
    num_envs: int = ...,
    backend: Literal["ray"] = ...,
    vector_kwargs: Mapping[str, Any] | None = ...,
    wrappers: Sequence[Wrapper] | None = ...,
    *,
    vectorization_mode: VectorizationMode | None = ...,
    autoreset_mode: str | AutoresetMode | None = ...,
    copy: bool | None = ...,
    first_ready: int | None = ...,
    num_workers: int | None = ...,
    on_failure: OnFailure | None = ...,
    step_timeout: float | None = ...,
    batch_size: int | None = ...,
    randomize: Mapping[str, Distribution] | None = ...,
    randomize_seed: int | None = ...,
    randomize_on: Literal["reset", "make"] = ...,
    **env_kwargs: Any,
) -> RayVectorEnv: ...


@overload
def make_vec(
    id: EnvReference,
    num_envs: int = ...,
    backend: Literal["jax"] = ...,
    vector_kwargs: Mapping[str, Any] | None = ...,
    wrappers: Sequence[Wrapper] | None = ...,
    *,
    vectorization_mode: VectorizationMode | None = ...,
    autoreset_mode: str | AutoresetMode | None = ...,
    copy: bool | None = ...,
    first_ready: int | None = ...,
    num_workers: int | None = ...,
    on_failure: OnFailure | None = ...,
    step_timeout: float | None = ...,
    batch_size: int | None = ...,
    randomize: Mapping[str, Distribution] | None = ...,
    randomize_seed: int | None = ...,
    randomize_on: Literal["reset", "make"] = ...,
    **env_kwargs: Any,
) -> JaxVectorEnv: ...


def make_vec(
    id: EnvReference,  # noqa: A002  Gymnasium's name
    num_envs: int = 1,
    backend: str | VectorizeMode = "auto",
    vector_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] | None = None,
    *,
    vectorization_mode: str | VectorizeMode | None = None,
    autoreset_mode: str | AutoresetMode | None = None,
    copy: bool | None = None,
    first_ready: int | None = None,
    num_workers: int | None = None,
    on_failure: OnFailure | None = None,
    step_timeout: float | None = None,
    batch_size: int | None = None,
    randomize: Mapping[str, Distribution] | None = None,
    randomize_seed: int | None = None,
    randomize_on: Literal["reset", "make"] = "reset",
    **env_kwargs: Any,
) -> FleetVectorEnv:
    """Makes ``num_envs`` copies of an environment behind one batched interface.

    docs/make_vec.md describes every argument, with those of each backend.

    Args:
        id: A registered id, MODULE:ID, FILE.py:CLASS, an EnvSpec (that of an earlier fleet makes the same fleet
            again), a function or class that makes one environment, or an environment from ``envfleet.native``.
        num_envs: How many.
        backend: "native" (compiled environments, bit-identical to Gymnasium's, see docs/native.md), "sync" (the
            caller's thread), "process" (worker processes), "ray" (Ray actors, on as many machines as there are, see
            docs/ray.md) or "auto": native if there is one, else sync or process, as a short measurement suggests, for
            which one more environment is made, stepped and closed in a process of its own. ``envs.plan`` says what was
            picked and why. ``envfleet.backends`` is the table of all of them, to which you can add your own.
        vector_kwargs: Further arguments of NativeVectorEnv, SyncVectorEnv, AsyncVectorEnv or RayVectorEnv, such as
            ``max_restarts``.
        wrappers: Applied to each environment, the first one innermost.
        vectorization_mode: Gymnasium's name for ``backend``: "sync" or "async". With "vector_entry_point"
            the environment's own vectorised implementation is made as Gymnasium makes it; it is then no
            FleetVectorEnv, whatever the type says.
        autoreset_mode: When environments reset by themselves: NEXT_STEP (the default), SAME_STEP or DISABLED, as
            Gymnasium's enum, its value ("SameStep") or its name ("SAME_STEP"). This argument and the next five are
            those of the vector environments; in ``vector_kwargs`` they do the same.
        copy: Whether observations are the caller's to keep (the default), or live views.
        first_ready: How many results ``recv`` waits for, see docs/first_ready.md; by default those of all.
        num_workers: How many worker processes or Ray actors.
        on_failure: "raise" (the default), or "restart": an environment that fails is made again in place.
        step_timeout: Seconds after which an environment counts as hanging; by default it is waited for.
        batch_size: The older name of ``first_ready``.
        randomize: Distributions of constructor parameters by name: ``{"gravity": uniform(-12, -8)}`` gives
            every environment a gravity of its own; ``envs.parameters`` shows them.
        randomize_seed: Fixes these parameters; by default fresh entropy.
        randomize_on: "reset": every episode has its own, see docs/randomization.md; ``reset(seed=...)`` then fixes
            them too. Python environments are made again for that, which costs what making one costs; compiled ones
            are not. "make": they are drawn once, when the environments are made.
        **env_kwargs: Passed to the environment's constructor (for ids, to ``gymnasium.make``). If the constructor has
            an argument called like one of the six above, it gets that one too; use ``vector_kwargs`` for the fleet's.
    """
    spec = spec_of(id)
    of_fleet, of_env = arguments.shared_out(
        spec,
        {
            "autoreset_mode": autoreset_mode,
            "copy": copy,
            "first_ready": first_ready,
            "num_workers": num_workers,
            "on_failure": on_failure,
            "step_timeout": step_timeout,
            "batch_size": batch_size,
        },
    )
    arguments.check_env_kwargs(spec, env_kwargs)
    asked = Request(
        arguments.checked_num_envs(num_envs),
        arguments.checked_backend(backend, vectorization_mode),
        arguments.joined_vector_kwargs(vector_kwargs, of_fleet),
        arguments.checked_wrappers(wrappers),
        arguments.checked_randomize(randomize),
        randomize_seed,
        arguments.checked_randomize_on(randomize_on),
        {**env_kwargs, **of_env},
    )
    arguments.refuse_given_and_randomised(asked)
    request = arguments.joined_with_spec(spec, asked)
    if request.backend == VectorizeMode.VECTOR_ENTRY_POINT.value:
        return _gymnasiums_own(spec, request)
    with naming_missing_packages(spec):
        return _make_fleet(replace(spec, kwargs={}), request)


def _make_fleet(spec: EnvSpec, request: Request) -> FleetVectorEnv:
    if spec.entry_point is None:
        raise gymnasium.error.Error(f"{spec.id} has no entry point to make single environments from.")
    parameters = None if backends.only_one_for(spec) and request.randomize_on == "reset" else _draw(spec, request)
    wanted = FleetRequest(
        spec,
        request.num_envs,
        request.env_kwargs,
        request.vector_kwargs,
        request.wrappers,
        parameters,
        _streams(request),
    )
    asked = backends.find(request.backend) or backends.only_one_for(spec)
    arguments.check_vector_kwargs(asked, request.vector_kwargs)
    backend, envs = _make_automatically(wanted) if asked is None else (asked, _make_with(asked, wanted))
    envs._drawn_once = parameters
    envs.spec = arguments.spec_to_make_again(spec, request, backend)
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
    plan = plan_for(wanted)
    chosen = backends.find(plan.backend)
    assert chosen is not None
    arguments.check_vector_kwargs(chosen, wanted.vector_kwargs)
    envs = chosen.make(replace(wanted, vector_kwargs={**plan.vector_kwargs, **wanted.vector_kwargs}))
    envs.plan = plan.sentence + remarks
    return chosen, envs


def plan_for(wanted: FleetRequest) -> Plan:
    """Returns the backend for Python environments: the one that an argument needs, or that a measurement suggests."""
    decided = backends.decided_by(wanted.vector_kwargs)
    if decided is not None:
        backend, argument = decided
        plan = Plan(backend.name, f"{backend.name}: the argument {argument!r} needs {backend.where}.")
        return _with_workers(plan, wanted) if backend.counts_workers and wanted.num_envs > 1 else plan
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


def _streams(request: Request) -> tuple[ParameterStream, ...] | None:
    """Where each environment's parameters come from, if every episode has its own."""
    if not request.randomize or request.randomize_on != "reset":
        return None
    assert request.randomize_seed is not None
    return tuple(ParameterStream(request.randomize, request.randomize_seed, i) for i in range(request.num_envs))


def _draw(spec: EnvSpec, request: Request) -> ParameterTable | None:
    if not request.randomize:
        return None
    made_by_gymnasium = () if is_function(spec) else MAKE_ARGUMENTS
    names = [name for name in request.randomize if name not in made_by_gymnasium]
    check_parameter_names(names, constructor_of(spec), spec.name if is_function(spec) else spec.id)
    assert request.randomize_seed is not None
    return draw_parameters(request.randomize, request.num_envs, request.randomize_seed)


def _gymnasiums_own(spec: EnvSpec, request: Request) -> FleetVectorEnv:
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
