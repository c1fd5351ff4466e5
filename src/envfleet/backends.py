"""The table of backends: ``make_vec``, training, the command line and ``tune`` read it.

A backend of your own is one more line::

    from envfleet import backends

    backends.register(backends.Backend("mine", backends.from_functions(MyVectorEnv), "my machines"))
    envs = envfleet.make_vec("CartPole-v1", 8, backend="mine")

``MyVectorEnv`` is constructed as ``SyncVectorEnv`` is: from a list of functions that make one environment each, and
``vector_kwargs``. It holds to the contract if it passes ``envfleet.testing.VectorEnvContract``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

from gymnasium.envs.registration import EnvSpec, VectorizeMode

from envfleet._single import Wrapper, make_env, redrawn_env
from envfleet.errors import UnsupportedError
from envfleet.native.atari import has_atari, make_atari
from envfleet.native.env import has_native, make_native
from envfleet.randomize import ParameterTable
from envfleet.redraw import ParameterStream
from envfleet.vector import AsyncVectorEnv, FleetVectorEnv, RayVectorEnv, SyncVectorEnv
from envfleet.vector.fused_env import EnvFn

__all__ = ["Backend", "FleetRequest", "from_functions", "names", "register"]

AUTO = "auto"
"""No backend: a measurement decides which one it is."""


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
        decided_by: Names in ``vector_kwargs`` for which "auto" takes it without measuring.
    """

    name: str
    make: Callable[[FleetRequest], FleetVectorEnv]
    where: str
    gymnasium_name: str = ""
    suits: Callable[[EnvSpec], bool] = _never
    decided_by: frozenset[str] = frozenset()

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


_WORKERS = ("num_workers", "max_concurrency", "worker", "context", "daemon", "shared_memory", "caller_works")
_FAILURES = ("on_failure", "step_timeout", "start_timeout")

_table: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("native", _compiled, "compiled", suits=has_native),
        Backend("sync", from_functions(SyncVectorEnv), "this thread"),
        Backend(
            "process",
            from_functions(AsyncVectorEnv),
            "worker processes",
            gymnasium_name=VectorizeMode.ASYNC.value,
            decided_by=frozenset((*_WORKERS, *_FAILURES, "batch_size")),
        ),
        Backend("ray", from_functions(RayVectorEnv), "actors on several machines"),
    )
}


_OURS = frozenset(_table)


def register(backend: Backend) -> None:
    """Adds a backend to the table, for this process; names that are taken are refused."""
    for name in filter(None, (backend.name, backend.gymnasium_name)):
        if name in (AUTO, VectorizeMode.VECTOR_ENTRY_POINT.value) or find(name) is not None:
            raise ValueError(f"There is a backend {name!r} already: give yours another name.")
    _table[backend.name] = backend


def are_all_ours() -> bool:
    """Whether nobody has added a backend, which may take arguments that ours do not know."""
    return _table.keys() == _OURS


def names() -> tuple[str, ...]:
    """What ``backend=`` may be: "auto" and every backend there is."""
    return AUTO, *_table


if TYPE_CHECKING:
    BackendName: TypeAlias = str
else:  # what the command line shows as choices
    BackendName = Literal[names()]


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


def decided_by(vector_kwargs: Iterable[str]) -> tuple[Backend, str] | None:
    """The backend that "auto" takes because of an argument, and that argument."""
    given = sorted(vector_kwargs)
    found = [(backend, name) for backend in _table.values() for name in given if name in backend.decided_by]
    return found[0] if found else None


def described() -> str:
    """All names with what they mean, for a help text."""
    *others, last = [f'"{backend.name}" ({backend.where})' for backend in _table.values()]
    return f'"{AUTO}" (measured), {", ".join(others)} or {last}'
