"""JaxVectorEnv: functional environments on a device, stepped by one compiled call. A thin face on the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import jax
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envfleet._names import did_you_mean
from envfleet.device.batch import DeviceBatch
from envfleet.device.draws import check_drawable
from envfleet.device.engine import NO_TICKETS, JaxEngine
from envfleet.device.families import FunctionalMaker, functional_spec, maker_of
from envfleet.device.functional import FunctionalEnv, refuse_unknown
from envfleet.device.kernels import Shown
from envfleet.device.results import KINDS, Arrays, Results
from envfleet.errors import ResetNeeded, UnsupportedError
from envfleet.randomize import ParameterTable
from envfleet.redraw import Randomize
from envfleet.vector import arguments
from envfleet.vector.copies import remembers_arguments
from envfleet.vector.runtime import exclusive_for
from envfleet.vector.spaces import FleetSpaces, checked_mode
from envfleet.vector.vector_env import FleetOptions, FleetVectorEnv


@final
@dataclass(frozen=True)
class JaxEnvState:
    """One environment as it was: state, observation, step count, key and the number of its turn. It can be pickled.

    Attributes:
        kind: What the environment is called.
        seed: What its key was made from.
        row: The rest, as NumPy arrays.
    """

    kind: str
    seed: int
    row: Any


class Rollout(NamedTuple):
    """What ``rollout`` recorded; every array is (steps, num_envs, …) and lies on the device.

    Attributes:
        observations: Those that the policy saw.
        actions: What it did.
        rewards: float32.
        terminated: bool.
        truncated: bool.
        began: NEXT_STEP: which environments were reset instead of stepped; the action was ignored. SAME_STEP: which
            were reset after their step.
        extras: What the policy returned besides.
        final_observations: SAME_STEP: the observations before the resets; else None.
        infos: Those of the steps.
        last_observations: (num_envs, …): what the policy would see next.
    """

    observations: Any
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    began: Any
    extras: Any
    final_observations: Any
    infos: Any
    last_observations: Any


@final
@arguments.documented  # with SHARED_ARGUMENTS
class JaxVectorEnv(FleetVectorEnv, VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Runs functional environments of JAX: all of them in one compiled step, the resets inside.

    Args:
        env: An id such as "gymnax:CartPole-v1", a functional environment, its class, or a spec.
        num_envs: How many.
        arrays: "numpy" (the default), "jax", or "torch" (by DLPack, without a copy): what ``reset`` and ``step``
            return. With the last two nothing leaves the device, and infos have every key at every step.
        device: Where the arrays lie, as ``jax.devices`` calls it: "cpu", "gpu"; by default where JAX puts them.
        env_kwargs: Parameters for all environments, constructor arguments, ``max_episode_steps``, ``render_mode``.
        varied: Parameters that differ between environments.
        randomize: Parameters that every episode draws anew.
    """

    @remembers_arguments
    def __init__(
        self,
        env: Any,
        num_envs: int = 1,
        copy: bool = True,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        arrays: Arrays = "numpy",
        device: str | None = None,
        first_ready: int | None = None,
        batch_size: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        varied: ParameterTable | None = None,
        randomize: Randomize | None = None,
    ) -> None:
        if first_ready not in (None, num_envs) or batch_size not in (None, num_envs):
            raise ValueError(NO_TICKETS)
        if arrays not in KINDS:
            raise ValueError(f"arrays must be one of {KINDS}, got {arrays!r}{did_you_mean(str(arrays), KINDS)}.")
        spec = env if isinstance(env, EnvSpec) else functional_spec(env)
        maker = None if spec is None else maker_of(spec)
        if spec is None or maker is None:
            raise UnsupportedError(f"{getattr(spec, 'id', env)}, which is no functional environment")
        self.spec, mode = spec, checked_mode(autoreset_mode)
        made, render_mode, time_limit = _made(maker, dict(env_kwargs or {}))
        check_drawable(randomize or {}, made.name)
        refuse_unknown([*(varied or {}), *(randomize or {})], made.parameters, made.name)
        where = None if device is None else jax.devices(device)[0]
        rows = {name: np.asarray(column) for name, column in (varied or {}).items()}
        spaces = _spaces(made, num_envs, mode, render_mode)
        batch = DeviceBatch(made, num_envs, mode, time_limit, rows, randomize or {}, where)
        self._batch, self._results = batch, Results(spaces.single_observation_space, num_envs, arrays)
        engine = JaxEngine(batch, spaces, self._results, exclusive_for(type(self).__name__), spec)
        plan = (
            f"jax: {made.name} is functional, so all {num_envs} environments take one compiled step on {_place(batch)}."
        )
        options = FleetOptions(
            plan,
            copy,
            num_envs,
            randomize,
            needs_reset="The environments have not been reset yet.",
            check_reset=lambda _, per_env: _refuse_options(made.name, per_env),
        )
        super().__init__(spaces, engine, options)

    def rollout(self, policy_fn: Callable[..., Any], params: Any, steps: int, *, seed: int | Any = 0) -> Rollout:
        """Steps all environments many times in one compiled loop, with a policy that is compiled too.

        The numbers are those that ``step`` would give with the same actions. It goes on where the last call stopped.

        Args:
            policy_fn: ``policy_fn(params, observations, key)`` returns actions for all environments, and anything else
                to record: ``(actions, extras)``. It is compiled once: give the same function, not a new one each time.
            params: Of the policy, any pytree.
            steps: How many.
            seed: What the policy's keys are made from, an int or a key; turn t gets ``fold_in(key, t)``.
        """
        steps = arguments.positive_integer("steps", steps)
        with self._exclusive:
            self._state.enter_idle("rollout")
            self._state.check_may_step()
            if self.autoreset_mode is AutoresetMode.DISABLED:
                raise UnsupportedError(
                    "rollout() resets environments inside the compiled loop, and this fleet has "
                    "autoreset_mode='Disabled': make it with 'NextStep' or 'SameStep'."
                )
            key = jax.random.PRNGKey(seed) if arguments.is_integer(seed) else seed
            try:
                last, recorded = self._batch.rollout(policy_fn, (params, key), steps)
            except KeyboardInterrupt as error:
                self._state.give_up("step", error)
                raise
            self._state.rest()
        observations, actions, extras, shown = recorded
        return _rollout_of(observations, actions, extras, shown, last)

    def get_state(self, index: int) -> JaxEnvState:
        """Everything about environment ``index`` but its parameters, to be given to :meth:`set_state` later.

        Parameters that are drawn for every episode are part of it.
        """
        with self._exclusive:
            self._state.enter_idle("get_state")
            (env,) = arguments.env_indices(index, self.num_envs)
            self._check_was_reset("get_state")
            state = JaxEnvState(self._batch.env.name, self._batch.seeds[env], jax.tree.leaves(self._batch.row(env)))
            self._state.rest()
            return state

    def set_state(self, index: int, state: JaxEnvState) -> Any:
        """Puts environment ``index`` back into a state, of this fleet or another of the same kind.

        Returns:
            All observations, batched: those of the others are unchanged.
        """
        with self._exclusive:
            self._state.enter_idle("set_state")
            (env,) = arguments.env_indices(index, self.num_envs)
            self._check_was_reset("set_state")
            name = self._batch.env.name
            if not isinstance(state, JaxEnvState) or state.kind != name:
                raise TypeError(f"set_state needs a state of {name} from get_state(), got {state!r:.100}.")
            self._batch.set_row(env, self._fitting(state))
            self._batch.set_key(env, state.seed)
            self._block.finished[env] = bool(self._batch.row(env).carry.ended)
            self._state.rest()
            return self._block.observations(self.copy)

    def _fitting(self, state: JaxEnvState) -> Any:
        leaves, structure = jax.tree.flatten(self._batch.now)
        if [(leaf.shape[1:], leaf.dtype) for leaf in leaves] != [(row.shape, row.dtype) for row in state.row]:
            raise ValueError(
                f"The state of {state.kind} has other arrays than this fleet's environments: were they made with other "
                "arguments? Nothing was changed."
            )
        return jax.tree.unflatten(structure, state.row)

    def _check_was_reset(self, call: str) -> None:
        if self._batch.now is None:
            raise ResetNeeded(f"{call}() needs environments that have been reset: call reset() first.")


def _rollout_of(observations: Any, actions: Any, extras: Any, shown: Shown, last: Any) -> Rollout:
    flags = shown.terminated, shown.truncated, shown.began
    return Rollout(observations, actions, shown.rewards, *flags, extras, shown.last, shown.step_info, last)


def _made(maker: FunctionalMaker, env_kwargs: dict[str, Any]) -> tuple[FunctionalEnv, str | None, int | None]:
    """The environment, its render mode, and the steps after which its episodes are truncated."""
    render_mode = env_kwargs.pop("render_mode", None)
    if render_mode not in (None, "rgb_array"):
        raise UnsupportedError(f"render_mode={render_mode!r}, as it draws at every step; it has 'rgb_array'")
    given = "max_episode_steps" in env_kwargs
    limit = env_kwargs.pop("max_episode_steps", None)
    made = maker.adapted(env_kwargs)
    limit = None if limit == -1 else limit
    return made, render_mode, limit if given else made.time_limit


def _spaces(made: FunctionalEnv, num_envs: int, mode: AutoresetMode, render_mode: str | None) -> FleetSpaces:
    single, action = made.observation_space, made.action_space
    batched = batch_space(single, num_envs), batch_space(action, num_envs)
    return FleetSpaces(num_envs, single, batched[0], action, batched[1], dict(made.metadata), render_mode, mode)


def _place(batch: DeviceBatch) -> str:
    (device,) = batch.constants.keys.devices()
    return f"the {device.platform.upper()}" if device.platform == "cpu" else f"{device.platform.upper()} {device.id}"


def _refuse_options(env: str, options: Sequence[dict[str, Any] | None]) -> None:
    names = sorted({str(name) for one in options for name in one or {}})
    if names:
        raise ValueError(
            f"Unknown reset option {', '.join(map(repr, names))}: functional environments such as {env} take none but "
            "reset_mask. Nothing was reset."
        )


def make_jax(request: Any) -> JaxVectorEnv:
    """What ``make_vec`` makes; an UnsupportedError names what functional environments cannot do."""
    if request.wrappers:
        raise UnsupportedError("wrappers around single environments, as there are no Python objects to wrap")
    vector_kwargs = {k: v for k, v in request.vector_kwargs.items() if (k, v) != ("observation_mode", "same")}
    randomize = dict(request.streams[0].randomize) if request.streams else None
    envs = JaxVectorEnv(
        request.spec,
        request.num_envs,
        env_kwargs=request.env_kwargs,
        varied=request.parameters,
        randomize=randomize,
        **vector_kwargs,
    )
    envs.spec = replace(request.spec)
    return envs
