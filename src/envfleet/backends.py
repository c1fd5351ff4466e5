"""The table of backends: ``make_vec``, training, the command line and ``tune`` read it.

A backend of your own is one more line::

    from envfleet import backends

    mine = backends.register(backends.Backend("mine", backends.from_functions(MyVectorEnv), "my machines"))
    envs = envfleet.make_vec("CartPole-v1", 8, backend=mine)

``MyVectorEnv`` is constructed as ``SyncVectorEnv`` is: from a list of functions that make one environment each, and
``vector_kwargs``. It holds to the contract if it passes ``envfleet.testing.VectorEnvContract``.

``register`` returns the name. When a program runs, ``backend="mine"`` does as well. A type checker knows only the names
of envfleet, so that it finds ``backend="proces"``; what ``register`` returns is accepted too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NewType, TypeAlias, final

from gymnasium.envs.registration import EnvSpec, VectorizeMode

from envfleet._optional import needs
from envfleet._single import Wrapper, make_env, redrawn_env
from envfleet.device.families import is_functional, is_only_functional
from envfleet.errors import UnsupportedError
from envfleet.native.atari import has_atari, make_atari
from envfleet.native.env import has_native, make_native
from envfleet.randomize import ParameterTable
from envfleet.redraw import ParameterStream
from envfleet.vector import AsyncVectorEnv, FleetVectorEnv, RayVectorEnv, SyncVectorEnv
from envfleet.vector.fused_env import EnvFn

__all__ = ["Backend", "BackendName", "FleetRequest", "RegisteredBackend", "from_functions", "names", "register"]

AUTO = "auto"
"""No backend: a measurement decides which one it is."""

RegisteredBackend = NewType("RegisteredBackend", str)
"""The name of a backend in the table, as type checkers know it. When a program runs it is a plain string."""

if TYPE_CHECKING:
    BackendName: TypeAlias = Literal["auto", "native", "sync", "process", "async", "ray", "jax"] | RegisteredBackend
    """What ``backend=`` may be. When a program runs it is a Literal of the names in the table at that moment."""


@final
@dataclass(frozen=True)
class FleetRequest:
    """What a backend is asked to make.

    Attributes:
        spec: The environment's spec, without the arguments of a fleet.
        num_envs: How many environments.
        env_kwargs: Constructor arguments of all environments.
        vector_kwargs: Further arguments of the vector environment.
        wrappers: Applied to each environment, the first one innermost.
        parameters: Constructor arguments of single environments, drawn once; None if there are none.
        streams: Where each environment's parameters come from, if every episode has its own; None if not.
    """

    spec: EnvSpec
    num_envs: int
    env_kwargs: Mapping[str, Any]
    vector_kwargs: Mapping[str, Any]
    wrappers: tuple[Wrapper, ...] = ()
    parameters: ParameterTable | None = None
    streams: tuple[ParameterStream, ...] | None = None

    def env_fns(self) -> list[EnvFn]:
        """The functions that make the single environments, with all their arguments."""
        env_kwargs = dict(self.env_kwargs)
        if self.streams is not None:
            return [redrawn_env(self.spec, env_kwargs, self.wrappers, stream) for stream in self.streams]
        drawn = self.rows() or [{}] * self.num_envs
        return [partial(make_env, self.spec, env_kwargs, self.wrappers, row) for row in drawn]

    def rows(self) -> list[dict[str, Any]] | None:
        """The parameters that were drawn, one dict per environment; None if there are none."""
        return None if self.parameters is None else [self.parameters.row(i) for i in range(self.num_envs)]


def _never(spec: EnvSpec) -> bool:  # noqa: ARG001
    """No spec is one that "auto" takes it for."""
    return False


@final
@dataclass(frozen=True)
class Backend:
    """A line of the table.

    Attributes:
        name: What ``backend=`` calls it.
        make: Makes a fleet, or raises an UnsupportedError whose text says what it does not support.
        where: Where the environments run, in a few words, for help texts.
        gymnasium_name: Gymnasium's name for it, where that is another one. It is understood too, and specs use it, so
            that Gymnasium can read them.
        suits: Whether "auto" takes it for a spec, without measuring. If it raises, "auto" takes another one, and
            ``envs.plan`` says why.
        alone_for: Whether it is the only one that can make a spec's environments: then "auto" takes no other.
        decided_by: Names in ``vector_kwargs`` for which "auto" takes it without measuring.
        takes: Names that ``vector_kwargs`` may hold. Others are refused, with the name that was probably meant. Empty:
            ``make`` checks them itself.
        counts_workers: Whether "auto" gives it ``num_workers``, as many as a measurement suggests.
    """

    name: str
    make: Callable[[FleetRequest], FleetVectorEnv]
    where: str
    gymnasium_name: str = ""
    suits: Callable[[EnvSpec], bool] = _never
    alone_for: Callable[[EnvSpec], bool] = _never
    decided_by: frozenset[str] = frozenset()
    takes: tuple[str, ...] = ()
    counts_workers: bool = False

    @property
    def name_in_specs(self) -> str:
        """The ``vectorization_mode`` of a fleet's spec."""
        return self.gymnasium_name or self.name


def from_functions(vector_env: Callable[..., FleetVectorEnv]) -> Callable[[FleetRequest], FleetVectorEnv]:
    """The ``make`` of a backend whose vector environment is constructed from functions and ``vector_kwargs``."""
    return lambda request: vector_env(request.env_fns(), **request.vector_kwargs)


def _compiled(request: FleetRequest) -> FleetVectorEnv:
    if request.wrappers:
        raise UnsupportedError("wrappers around single environments")
    vector_kwargs = dict(request.vector_kwargs)
    if not has_atari(request.spec):
        varied = request.rows()
        return make_native(request.spec, request.num_envs, vector_kwargs, request.env_kwargs, varied, request.streams)
    if request.parameters is not None:
        raise UnsupportedError("randomize for Atari")
    return make_atari(request.spec, request.num_envs, vector_kwargs, request.env_kwargs)


def _on_a_device(request: FleetRequest) -> FleetVectorEnv:
    with needs("jax"):
        from envfleet.device.env import make_jax  # JAX takes a second to import
    return make_jax(request)


def _options_of(vector_env: type[FleetVectorEnv]) -> tuple[str, ...]:
    """What ``vector_kwargs`` may hold for a vector environment that is constructed from functions."""
    return tuple(inspect.signature(vector_env).parameters)[1:]


_WORKERS = ("num_workers", "max_concurrency", "worker", "context", "daemon", "shared_memory", "caller_works")
_FAILURES = ("on_failure", "step_timeout", "start_timeout")
_OF_DEVICES = ("arrays", "device")
_OF_COMPILED = ("copy", "observation_mode", "autoreset_mode", "threads", "first_ready", "batch_size")

_table: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("native", _compiled, "compiled", suits=has_native, takes=_OF_COMPILED),
        Backend("sync", from_functions(SyncVectorEnv), "this thread", takes=_options_of(SyncVectorEnv)),
        Backend(
            "process",
            from_functions(AsyncVectorEnv),
            "worker processes",
            gymnasium_name=VectorizeMode.ASYNC.value,
            decided_by=frozenset((*_WORKERS, *_FAILURES, "first_ready", "batch_size")),
            takes=_options_of(AsyncVectorEnv),
            counts_workers=True,
        ),
        Backend("ray", from_functions(RayVectorEnv), "actors on several machines", takes=_options_of(RayVectorEnv)),
        Backend(
            "jax",
            _on_a_device,
            "one compiled step on a device",
            suits=is_functional,
            alone_for=is_only_functional,
            takes=(*_OF_DEVICES, "copy", "observation_mode", "autoreset_mode", "first_ready", "batch_size"),
        ),
    )
}


def register(backend: Backend) -> RegisteredBackend:
    """Adds a backend to the table, for this process, and returns its name; names that are taken are refused."""
    for name in filter(None, (backend.name, backend.gymnasium_name)):
        if name in (AUTO, VectorizeMode.VECTOR_ENTRY_POINT.value) or find(name) is not None:
            raise ValueError(f"There is a backend {name!r} already: give yours another name.")
    _table[backend.name] = backend
    return RegisteredBackend(backend.name)


def names() -> tuple[str, ...]:
    """What ``backend=`` may be: "auto" and every backend there is."""
    return AUTO, *_table


def __getattr__(name: str) -> Any:
    if name == "BackendName":  # made when asked for: the command line offers what was registered until then
        return Literal[names()]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def spellings() -> tuple[str, ...]:
    """The names, and Gymnasium's names for them."""
    known = [name for backend in _table.values() for name in (backend.name, backend.gymnasium_name)]
    return AUTO, *filter(None, known)


def find(name: Any) -> Backend | None:
    """The backend of this name, or of this name of Gymnasium's."""
    return next((each for each in _table.values() if name and name in (each.name, each.gymnasium_name)), None)


def suitable(spec: EnvSpec) -> list[Backend]:
    """The backends that "auto" takes for a spec without measuring."""
    return [backend for backend in _table.values() if backend.suits(spec)]


def only_one_for(spec: EnvSpec) -> Backend | None:
    """The backend without which a spec's environments cannot be made, if there is one."""
    return next((backend for backend in _table.values() if backend.alone_for(spec)), None)


def options() -> dict[str, tuple[str, ...]]:
    """All names that ``vector_kwargs`` may hold, each with the backends that take it."""
    found: dict[str, tuple[str, ...]] = {}
    for backend in _table.values():
        for option in backend.takes:
            found[option] = (*found.get(option, ()), backend.name)
    return found


def decided_by(vector_kwargs: Iterable[str]) -> tuple[Backend, str] | None:
    """The backend that "auto" takes because of an argument, and that argument."""
    given = sorted(vector_kwargs)
    found = [(backend, name) for backend in _table.values() for name in given if name in backend.decided_by]
    return found[0] if found else None


def described() -> str:
    """All names with what they mean, for a help text."""
    *others, last = [f'"{backend.name}" ({backend.where})' for backend in _table.values()]
    return f'"{AUTO}" (measured), {", ".join(others)} or {last}'
