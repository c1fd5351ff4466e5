"""NativeVectorEnv: compiled environments on threads. A thin face on the C++ pool."""

from __future__ import annotations

import importlib
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, final

import gymnasium
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet import _native
from envfleet._optional import needs
from envfleet.errors import UnsupportedError
from envfleet.native import catalogue, snapshots
from envfleet.native.buffers import NativeBlock
from envfleet.native.catalogue import EnvArguments, check_varied, env_arguments
from envfleet.native.engine import NativeEngine, NativeShard
from envfleet.native.planned_episodes import EpisodePlans, PlannedEpisodes
from envfleet.native.rollouts import NativeRollouts, RolloutArrays
from envfleet.native.twin import Twin
from envfleet.redraw import ParameterStream
from envfleet.vector import arguments
from envfleet.vector.copies import remembers_arguments
from envfleet.vector.engine import StepOrder
from envfleet.vector.runtime import exclusive_for, usable_cores
from envfleet.vector.spaces import checked_mode, fleet_spaces
from envfleet.vector.vector_env import FleetOptions, FleetVectorEnv

_MODES = {AutoresetMode.NEXT_STEP: 0, AutoresetMode.SAME_STEP: 1, AutoresetMode.DISABLED: 2}
_VECTOR_ARGUMENTS = frozenset(("copy", "autoreset_mode", "threads", "first_ready", "batch_size"))
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


class XlaFunctions(NamedTuple):
    """A fleet for compiled functions of JAX.

    Attributes:
        handle: Where the fleet stands, an array. Every call takes the handle that the call before it returned, and
            returns the next one: so the calls come in order.
        reset: ``reset(handle, mask=None)`` resets all environments, or those of the mask, and returns the next handle
            and ``(observations, infos)``. The environments' generators run on.
        step: ``step(handle, actions)`` steps all environments and returns the next handle and ``(observations,
            rewards, terminated, truncated, infos)``. With SAME_STEP, infos hold ``final_obs``, the last observations of
            the episodes that ended, zeros elsewhere, and the mask ``_final_obs``; nothing else.
    """

    handle: Any
    reset: Callable[..., tuple[Any, tuple[Any, dict[str, Any]]]]
    step: Callable[[Any, Any], tuple[Any, tuple[Any, Any, Any, Any, dict[str, Any]]]]


@final
@arguments.documented  # with SHARED_ARGUMENTS
class NativeVectorEnv(FleetVectorEnv, VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Runs compiled environments that give the numbers of Gymnasium's own.

    Args:
        spec: A registered id or a spec.
        num_envs: How many.
        threads: How many threads step the environments, the caller's being one. By default as many as pay off,
            measured while running, and never more than the cores.
        env_kwargs: The environment's constructor arguments, and Gymnasium's ``max_episode_steps``.
        varied: Further arguments, one dict per environment.
        origins: Where each environment's parameters come from, if they are drawn anew for every episode; takes the
            place of ``varied``.
    """

    @remembers_arguments
    def __init__(
        self,
        spec: str | EnvSpec,
        num_envs: int = 1,
        copy: bool = True,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        threads: int | None = None,
        first_ready: int | None = None,
        batch_size: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        varied: Sequence[Mapping[str, Any]] | None = None,
        origins: Sequence[ParameterStream] | None = None,
    ) -> None:
        self.spec = gymnasium.spec(spec) if isinstance(spec, str) else spec
        batch_size = arguments.one_of_two_names(first_ready, batch_size)
        mode, kind = checked_mode(autoreset_mode), _kind_of(self.spec)
        threads_wanted = checked_threads(threads) or min(usable_cores(), num_envs)
        if origins:
            varied = [origin.stream().next().parameters(origin.randomize) for origin in origins]
        envs = _arguments_of_all(self.spec, kind, dict(env_kwargs or {}), varied, num_envs)
        first = {**(env_kwargs or {}), **(varied[0] if varied else {})}
        twin = Twin(self.spec, kind, first)
        compiled_name = kind.name_for({**self.spec.kwargs, **first})
        self._kind = kind.title or compiled_name
        spaces = fleet_spaces([twin.face] * num_envs, "same", mode)
        self._identity = f"{self._kind}, {spaces.single_observation_space} by {spaces.single_action_space}"
        parameters = [each.parameters for each in envs]
        companions = kind.companions and kind.companions(twin.unwrapped, parameters, num_envs)
        parameters = companions.parameters if companions else parameters
        block = NativeBlock(spaces, _native.info_columns(compiled_name, parameters[0]))
        self._pool = pool = _native.make(
            compiled_name,
            parameters,
            block.pool_arrays(),
            _MODES[mode],
            [each.time_limit for each in envs] * (num_envs // len(envs)),
            threads_wanted,
            threads is None,
            (companions, kind),
        )
        self._plans = plans = None
        if origins:
            arguments_of = partial(_arguments_of_one, self.spec, kind, dict(env_kwargs or {}), companions)
            self._plans = plans = EpisodePlans(pool, origins, arguments_of)
        block.attach(pool, plans)
        shard = NativeShard(pool, twin, self._kind, num_envs, companions, plans, None if origins else varied)
        engine = NativeEngine(pool, block, shard, exclusive_for(type(self).__name__))
        self._rollouts = NativeRollouts(pool, plans, engine.quick)
        self._for_xla, self._spaces_of_all = engine.for_xla, spaces
        options = FleetOptions(
            f"native: {self._kind} is compiled" + ("." if kind.title else " and bit-identical to Gymnasium's."),
            copy,
            batch_size,
            None if plans is None else plans.randomize,
            needs_reset="The environments have not been reset yet.",
            check_reset=partial(_check_reset, pool),
        )
        super().__init__(spaces, engine, options)

    def roll_out(
        self, policy: _native.RowPolicy, arrays: RolloutArrays, info_names: Sequence[str] = ()
    ) -> _native.Rollout | None:
        """Steps all environments many times in one call of compiled code, with a policy that is compiled too.

        Returns:
            How many steps were made, and what is known about the episodes that ended in them. None if a step has to
            be taken the ordinary way, which then also says why.
        """
        with self._exclusive:
            return self._rollouts.run(policy, arrays, info_names) if self._quick.ready else None

    def xla(self) -> XlaFunctions:
        """The fleet inside compiled functions of JAX, on the CPU: ``handle, reset, step = envs.xla()``.

        ``step`` can be used under ``jax.jit`` and in ``jax.lax.scan``. Its numbers are those that :meth:`step` gives,
        in the precision that JAX is set to. What goes wrong, in an environment or with the actions, is raised where
        JAX waits for the results. See docs/jax.md.
        """
        with needs("jax"):
            importlib.import_module("jax")
        functions = importlib.import_module("envfleet.native.xla")
        with self._exclusive:
            self._state.enter_idle("xla")
            self._state.check_may_step()
            if self._plans is not None:
                raise UnsupportedError(
                    "xla() steps environments without Python, which draws the parameters of every episode of this "
                    "fleet: make it with randomize_on='make'."
                )
            self._state.rest()
            found: XlaFunctions = functions.functions_of(self._for_xla(), self._spaces_of_all)
            return found

    def get_state(self, index: int) -> EnvState:
        """Everything about environment ``index`` but its parameters, to be given to :meth:`set_state` later.

        Where parameters are drawn anew for every episode, those of this one and of all that follow are part of it.
        """
        with self._exclusive:
            self._state.enter_idle("get_state")
            (env,) = arguments.env_indices(index, self.num_envs)
            try:
                state = self._pool.snapshot(env)
            except RuntimeError as error:
                raise RuntimeError(f"Environment {env} of {self._kind} cannot be kept: {error}") from None
            data = snapshots.packed(self._identity, state)
            self._state.rest()
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
        self._state.enter_idle("set_state")
        (env,) = arguments.env_indices(index, self.num_envs)
        if not isinstance(state, EnvState) or not isinstance(state.data, bytes) or state.kind != self._kind:
            raise TypeError(f"set_state needs a state of {self._kind} from get_state(), got {reprlib.repr(state)}.")
        try:
            self._restore(env, snapshots.unpacked(state.data, self._identity), state.episodes)
        except (ValueError, RuntimeError) as error:  # from the environment itself, in words
            raise snapshots.SnapshotError(
                f"The state cannot be put back into environment {env} of {self._kind}: {error} Nothing was changed."
            ) from None
        self._state.rest()
        return self._block.observations(self.copy)

    def _restore(self, env: int, state: bytes, episodes: PlannedEpisodes | None) -> None:
        if self._plans is None or episodes is None:
            self._pool.restore(env, state)
        else:
            self._plans.restore(env, episodes, partial(self._pool.restore, env, state))


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


def _check_reset(pool: _native.Pool, seeds: object, options: Sequence[dict[str, Any] | None]) -> None:  # noqa: ARG001
    pool.check_options(list(options))


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
        raise ValueError(f"varied must have one dict per environment: expected {num_envs}, got {len(varied)}.")
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


def checked_threads(threads: Any) -> int | None:
    """A number of threads, or None for as many as pay off."""
    if threads is not None and not (arguments.is_integer(threads) and threads >= 1):
        raise ValueError(f"threads must be a positive integer or None, got {threads!r}.")
    return threads if threads is None else int(threads)
