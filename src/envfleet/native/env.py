"""NativeVectorEnv: compiled environments on threads. A thin face on the C++ pool."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, final

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from envfleet import _native
from envfleet.errors import UnsupportedError
from envfleet.native import catalogue, snapshots
from envfleet.native.buffers import NativeBuffers
from envfleet.native.catalogue import EnvArguments, check_varied, env_arguments
from envfleet.native.engine import NativeShard
from envfleet.native.planned_episodes import EpisodePlans, PlannedEpisodes
from envfleet.native.twin import Twin
from envfleet.redraw import ParameterStream
from envfleet.vector import arguments
from envfleet.vector.block import Rows
from envfleet.vector.engine import Order, Report, ResetOrder, StepOrder
from envfleet.vector.infos import Info
from envfleet.vector.runtime import usable_cores
from envfleet.vector.spaces import checked_mode, fleet_spaces
from envfleet.vector.vector_env import FleetVectorEnv, Indices, Options, Seed, StepResult

_MODES = {AutoresetMode.NEXT_STEP: 0, AutoresetMode.SAME_STEP: 1, AutoresetMode.DISABLED: 2}
_VECTOR_ARGUMENTS = frozenset(("copy", "autoreset_mode", "threads", "batch_size"))
_NOTHING = StepOrder()


@final
@dataclass(frozen=True)
class EnvState:
    """One environment as it was: its state, random generator and step count.

    Its parameters are part of it only where every episode has its own, in ``episodes``. It can be pickled.

    Attributes:
        kind: What the environment is called.
        data: The state, with a version and a checksum: see ``envfleet.native.snapshots``.
        episodes: The parameters of this episode and of those to come, where each has its own.
    """

    kind: str
    data: bytes
    episodes: PlannedEpisodes | None = None


@final
class NativeVectorEnv(FleetVectorEnv):
    """Runs compiled environments that give the numbers of Gymnasium's own.

    Args:
        spec: A registered id or a spec.
        num_envs: How many.
        copy: True: returned observations are the caller's to keep. False: they are live views, valid until
            the next ``step`` or ``reset``.
        autoreset_mode: When environments reset by themselves; "NextStep", "SameStep" or "Disabled".
        threads: How many threads step the environments, the caller's being one. By default as many as pay off,
            measured while running, and never more than the cores.
        batch_size: How many environments ``recv`` waits for; by default all.
        env_kwargs: The environment's constructor arguments, and Gymnasium's ``max_episode_steps``.
        varied: Further arguments, one dict an environment.
        origins: Where each environment's parameters come from, if they are drawn anew for every episode; takes the
            place of ``varied``.
    """

    def __init__(
        self,
        spec: str | EnvSpec,
        num_envs: int = 1,
        copy: bool = True,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        threads: int | None = None,
        batch_size: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        varied: Sequence[Mapping[str, Any]] | None = None,
        origins: Sequence[ParameterStream] | None = None,
    ) -> None:
        self.closed = True  # until there is something to close
        self.spec = gymnasium.spec(spec) if isinstance(spec, str) else spec
        mode, kind = checked_mode(autoreset_mode), _kind_of(self.spec)
        threads_wanted = _checked_threads(threads, num_envs)
        if origins:
            varied = [origin.stream().next().parameters(origin.randomize) for origin in origins]
        envs = _arguments_of_all(self.spec, kind, dict(env_kwargs or {}), varied, num_envs)
        first = {**(env_kwargs or {}), **(varied[0] if varied else {})}
        model = Twin(self.spec, kind, first)
        compiled_name = kind.name_for({**self.spec.kwargs, **first})
        self._kind = kind.title or compiled_name
        spaces = fleet_spaces([model.face] * num_envs, "same", mode)
        self._identity = f"{self._kind}, {spaces.single_observation_space} by {spaces.single_action_space}"
        parameters = [each.parameters for each in envs]
        companions = kind.companions and kind.companions(model.unwrapped, parameters, num_envs)
        parameters = companions.parameters if companions else parameters
        buffers = NativeBuffers(spaces, _native.info_columns(compiled_name, parameters[0]))
        self._pool = _native.make(
            compiled_name,
            parameters,
            buffers.pool_arrays(),
            _MODES[mode],
            [each.time_limit for each in envs] * (num_envs // len(envs)),
            threads_wanted,
            threads is None,
            (companions, kind),
        )
        plans = None
        if origins:
            arguments_of = partial(_arguments_of_one, self.spec, kind, dict(env_kwargs or {}), companions)
            plans = EpisodePlans(self._pool, origins, arguments_of)
        buffers.attach(self._pool, plans)
        self._order: Order = _NOTHING
        self._quick_step = self._pool.step
        self._shard = NativeShard(self._pool, model, self._kind, num_envs, companions, plans)
        self._plans = plans
        redrawn = None if plans is None else plans.randomize
        self._set_up(spaces, buffers, copy=copy, batch_size=batch_size, restarts=False, redrawn=redrawn)
        self._pool.share(self._exclusive)
        self._finished, self._out = buffers.finished, buffers.out
        self._needs_reset = "The environments have not been reset yet."
        self.plan = f"native: {self._kind} is compiled" + ("." if kind.title else " and gives Gymnasium's numbers.")
        self.closed = False

    def step(self, actions: Any) -> StepResult:
        """Steps all environments; as in :class:`FleetVectorEnv`, in one call of compiled code where possible."""
        result = self._quick_step(actions, self.copy)
        if result is None:
            return super().step(actions)
        if result is False:
            self._raise_quick_failure()
        return result  # type: ignore[return-value]

    def _raise_quick_failure(self) -> None:
        failure = self._pool.quick_failure()
        assert failure is not None
        self._raise_first_failure("step", [Report(failures=[self._shard.failure_of("step", *failure)])])

    def _reset_order(self, call: str, seed: Seed, options: Options) -> ResetOrder:
        """As in :class:`FleetVectorEnv`; options that the environments do not know are refused by name."""
        if options is not None:
            self._check_open()
            _, per_env = arguments.reset_options(options, self.num_envs)
            self._pool.check_options(per_env)
        return super()._reset_order(call, seed, options)

    def _collect_reset(self, timeout: float | None) -> tuple[Any, Info]:
        result = super()._collect_reset(timeout)
        self._pool.ready = True
        return result

    def _collect_step(self, timeout: float | None) -> StepResult:
        result = super()._collect_step(timeout)
        self._pool.ready = True
        return result

    def _collect_call(self, timeout: float | None) -> tuple[Any, ...]:
        try:
            return super()._collect_call(timeout)
        finally:
            self._pool.ready = self._needs_reset is None and self._pending is None and not self.closed

    def send(self, actions: Any, env_ids: Indices = None) -> None:
        """As in :class:`FleetVectorEnv`; threads begin at once where that pays off."""
        try:
            sent = self._pool.send(actions, env_ids)
        except BaseException as error:
            self._give_up("step", error)
            raise
        if not sent:
            super().send(actions, env_ids)

    def recv(self, timeout: float | None = None) -> StepResult:
        """As in :class:`FleetVectorEnv`. Instead of waiting the caller steps environments too: no timeout ends that."""
        result = self._quick_recv() if timeout is None else None
        if result is None:
            result = super().recv(timeout)
        if result is False:
            self._raise_quick_failure()
        return result  # type: ignore[return-value]

    def _collect_some(self, timeout: float | None) -> StepResult:
        self._pool.ready = False
        result = super()._collect_some(timeout)
        self._pool.ready = True
        return result

    def _quick_recv(self) -> tuple[Any, ...] | Literal[False] | None:
        try:
            return self._pool.recv(self.batch_size)
        except BaseException as error:
            self._give_up("step", error)
            self._exclusive.settle()  # a signal handler may have closed the fleet
            raise

    def _give_up(self, name: str, error: BaseException) -> None:
        self._pool.ready = False
        super()._give_up(name, error)

    def get_state(self, index: int) -> EnvState:
        """Everything about environment ``index`` but its parameters, to be given to :meth:`set_state` later.

        Where parameters are drawn anew for every episode, those of this one and of all that follow are part of it.
        """
        with self._exclusive:
            self._check_idle("get_state")
            (env,) = arguments.env_indices(index, self.num_envs)
            try:
                state = self._pool.snapshot(env)
            except RuntimeError as error:
                raise RuntimeError(f"Environment {env} of {self._kind} cannot be kept: {error}") from None
            data = snapshots.packed(self._identity, state)
            return EnvState(self._kind, data, self._plans and self._plans.snapshot(env))

    def set_state(self, index: int, state: EnvState) -> Any:
        """Puts environment ``index`` back into a state, of this fleet or another of the same kind.

        Returns:
            All observations, batched: those of the others are unchanged.

        Raises:
            TypeError: It is no state, or one of another kind.
            SnapshotError: It is damaged, of another version, or of an environment with other spaces; a ValueError.
                Nothing was changed.
        """
        with self._exclusive:
            return self._set_state(index, state)

    def _set_state(self, index: int, state: EnvState) -> Any:
        self._check_idle("set_state")
        (env,) = arguments.env_indices(index, self.num_envs)
        if not isinstance(state, EnvState) or not isinstance(state.data, bytes) or state.kind != self._kind:
            raise TypeError(f"set_state needs a state of {self._kind} from get_state(), got {reprlib.repr(state)}.")
        try:
            self._restore(env, snapshots.unpacked(state.data, self._identity), state.episodes)
        except (ValueError, RuntimeError) as error:  # from the environment itself, in words
            raise snapshots.SnapshotError(
                f"The state cannot be put back into environment {env} of {self._kind}: {error} Nothing was changed."
            ) from None
        return self._buffers.observations(self.copy)

    def _restore(self, env: int, state: bytes, episodes: PlannedEpisodes | None) -> None:
        if self._plans is None or episodes is None:
            self._pool.restore(env, state)
        else:
            self._plans.restore(env, episodes, partial(self._pool.restore, env, state))

    def _begin(self, order: Order) -> None:
        self._pool.ready = False
        self._order = order

    def _finish(self, timeout: float | None) -> Sequence[Report | None]:  # noqa: ARG002  nothing to wait for
        return [self._shard.execute(self._order)]

    def _steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:  # noqa: ARG002
        return partial(self._shard.send, rows)

    def _resets(self, order: ResetOrder) -> Callable[[], None]:
        return partial(self._shard.send_resets, order)

    def _receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:
        return self._shard.receive(count, timeout)

    def _is_busy(self) -> bool:
        return False

    def _discard(self) -> None:
        try:
            self._shard.recall(None)
        except BaseException as error:
            self._give_up("reset", error)
            raise

    def _recover(self) -> None:
        self._discard()

    def _shut_down(self, timeout: float, terminate: bool) -> None:
        patience = 0.0 if terminate else timeout
        try:
            stuck = self._shard.recall(patience)
        finally:
            self._shard.close()
        if stuck:
            warnings.warn(
                f"Environments {stuck} did not return from their steps or resets within {patience:g} s. Threads cannot "
                "be ended: theirs go on, and keep the memory that they use until the program ends.",
                RuntimeWarning,
                stacklevel=3,
            )

    def _worker_of(self, env_index: int) -> None:  # noqa: ARG002
        return None


def has_native(spec: EnvSpec) -> bool:
    """Whether there is a compiled environment for this spec."""
    return catalogue.find(spec) is not None


def make_native(
    spec: EnvSpec,
    num_envs: int,
    vector_kwargs: dict[str, Any],
    env_kwargs: Mapping[str, Any],
    varied: Sequence[Mapping[str, Any]] | None,
    origins: Sequence[ParameterStream] | None = None,
) -> NativeVectorEnv:
    """What ``make_vec`` makes; an UnsupportedError names what native environments cannot do."""
    rest = {name: value for name, value in vector_kwargs.items() if (name, value) != ("observation_mode", "same")}
    unknown = sorted(rest.keys() - _VECTOR_ARGUMENTS)
    if unknown:
        raise UnsupportedError(f"the vector_kwargs argument {unknown[0]!r}")
    return NativeVectorEnv(spec, num_envs, env_kwargs=env_kwargs, varied=varied, origins=origins, **rest)


def _kind_of(spec: EnvSpec) -> catalogue.NativeKind:
    kind = catalogue.find(spec)
    if kind is None:
        raise UnsupportedError(f"{spec.id}, which has not been written in C++")
    if not kind.is_compiled:
        raise UnsupportedError(f"{spec.id} in this installation: it needs {kind.needs}")
    return kind


def _arguments_of_all(
    spec: EnvSpec,
    kind: catalogue.NativeKind,
    env_kwargs: dict[str, Any],
    varied: Sequence[Mapping[str, Any]] | None,
    num_envs: int,
) -> list[EnvArguments]:
    """One for all environments if they are the same, else one each."""
    if not varied:
        return [env_arguments(spec, kind, env_kwargs)]
    if len(varied) != num_envs:
        raise ValueError(f"varied must have one dict an environment: expected {num_envs}, got {len(varied)}.")
    check_varied(spec, kind, varied)
    return [env_arguments(spec, kind, {**env_kwargs, **each}) for each in varied]


def _arguments_of_one(
    spec: EnvSpec,
    kind: catalogue.NativeKind,
    env_kwargs: dict[str, Any],
    companions: catalogue.Companions | None,
    env: int,
    drawn: dict[str, Any],
) -> EnvArguments:
    """What environment ``env`` is given when these arguments were drawn for it."""
    found = env_arguments(spec, kind, {**env_kwargs, **drawn})
    return replace(found, parameters=companions.completed(env, found.parameters)) if companions else found


def _checked_threads(threads: Any, num_envs: int) -> int:
    if threads is None:
        return min(usable_cores(), num_envs)
    if not isinstance(threads, int | np.integer) or isinstance(threads, bool) or threads < 1:
        raise ValueError(f"threads must be a positive integer or None, got {threads!r}.")
    return int(threads)
