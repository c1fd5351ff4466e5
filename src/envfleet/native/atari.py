"""AtariVectorEnv: ale-py's own vectorised Atari games behind the contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, final

import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv

from envfleet import _core
from envfleet.errors import UnsupportedError
from envfleet.native.env import checked_threads
from envfleet.vector.arguments import is_integer
from envfleet.vector.copies import remembers_arguments
from envfleet.vector.engine import (
    CallOrder,
    NoQuickCalls,
    Order,
    Report,
    ResetOrder,
    Rows,
    SetAttrOrder,
    StepOrder,
    StepResult,
)
from envfleet.vector.failures import Failure
from envfleet.vector.infos import Info
from envfleet.vector.layout import Array, LayoutError, SpaceLayout
from envfleet.vector.runtime import exclusive_for, signals_blocked
from envfleet.vector.spaces import EnvFace, FleetSpaces, checked_mode, fleet_spaces
from envfleet.vector.vector_env import FleetOptions, FleetVectorEnv

_KEYS = ("lives", "frame_number", "episode_frame_number")
_FINAL = "final_obs"


@final
class AtariBlock:
    """The results of the last turn, and the actions of the next.

    ale-py returns fresh arrays at every step, so that nothing has to be copied.
    """

    def __init__(self, spaces: FleetSpaces) -> None:
        n = spaces.num_envs
        self._layout = SpaceLayout(spaces.single_action_space, "action")
        self._space = spaces.single_action_space
        self._ends_at_once = spaces.autoreset_mode is AutoresetMode.SAME_STEP
        ((_, shape, dtype),) = self._layout.array_leaves
        self.actions: Array = np.zeros((n, *shape), dtype)
        self._observations: Array = np.zeros(spaces.observation_space.shape or (), np.uint8)
        self._infos: Info = {}
        self._told = np.zeros(n, np.bool_)
        self.rewards = np.zeros(n)
        self.terminated, self.truncated, self.finished, self.out = (np.zeros(n, np.bool_) for _ in range(4))

    def store_actions(
        self,
        actions: Any,
        rows: Rows | None = None,
        *,
        were_tried: bool = False,  # noqa: ARG002
    ) -> list[list[Any]]:
        """Checks all actions, then writes them; none travels beside."""
        (column,) = self._layout.checked(actions, len(self.actions) if rows is None else len(rows))
        column = np.asarray(column)
        self._check_range(column)
        self.actions[slice(None) if rows is None else rows] = column
        return []

    def _check_range(self, actions: Array) -> None:
        # Also those of games that are about to start again, which ignore them: ale-py does not.
        if isinstance(self._space, Discrete):
            low, high = self._space.start, self._space.start + self._space.n - 1
        else:
            low, high = self._space.low, self._space.high  # type: ignore[attr-defined]
        wrong = np.flatnonzero(~((actions >= low) & (actions <= high)).reshape(len(actions), -1).all(axis=1))
        if wrong.size:
            place = int(wrong[0])
            raise LayoutError(f"action[{place}]: expected {low} to {high}, got {actions[place]}")

    # -- what ale-py returned -------------------------------------------------------------------------

    def take_step(self, observations: Array, rewards: Array, terminated: Array, truncated: Array, infos: Info) -> None:
        """Takes over the results of a step."""
        self._observations, self._infos = observations, infos
        self.rewards = rewards.astype(np.float64)
        self.terminated, self.truncated = terminated, truncated
        self._told[:] = True

    def take_reset(self, mask: npt.NDArray[np.bool_], observations: Array, infos: Info) -> None:
        """Takes over the results of a reset of the environments in the mask."""
        self._observations, self._infos = observations, infos
        self.rewards[mask] = 0.0
        self.terminated, self.truncated = self.terminated & ~mask, self.truncated & ~mask
        self._told[:] = mask

    # -- what the fleet shows of it -------------------------------------------------------------------

    def parameter_cells(self) -> npt.NDArray[np.float64]:
        """None: games have no parameters to randomise."""
        return np.empty((len(self.actions), 0))

    def observations(self, copy: bool) -> Array:  # noqa: ARG002  fresh anyway
        """The batched observations, uint8[num_envs, ...]."""
        return self._observations

    def reset_results(self, reports: Sequence[Report | None], copy: bool) -> tuple[Array, Info]:  # noqa: ARG002
        """What ``reset`` returns of the turn that just ended."""
        return self._observations, self._batched_infos()

    def step_results(self, reports: Sequence[Report | None], copy: bool) -> StepResult:  # noqa: ARG002
        """What ``step`` returns of the turn that just ended."""
        flags = self.terminated.copy(), self.truncated.copy()
        return self._observations, self.rewards.copy(), *flags, self._batched_infos()

    def ticket_results(self, rows: Rows, reports: Sequence[Report | None]) -> StepResult:  # noqa: ARG002
        """The same: the given rows are always all of them."""
        return self.step_results(reports, copy=True)

    def _batched_infos(self) -> Info:
        infos: Info = {}
        for key in _KEYS:
            infos[key], infos[f"_{key}"] = self._infos[key], self._told.copy()
        ended = self.terminated | self.truncated
        if self._ends_at_once and _FINAL in self._infos and ended.any():
            finals = np.full(len(ended), None, dtype=object)
            for env in np.flatnonzero(ended).tolist():
                finals[env] = self._infos[_FINAL][env].copy()
            infos[_FINAL], infos[f"_{_FINAL}"] = finals, ended
            infos["final_info"], infos["_final_info"] = {}, ended.copy()  # ale-py keeps none
        return infos


ENTRY_POINT = "ale_py.vector_env:AtariVectorEnv"

_MOST_SEED = 2**31 - 1
_NO_SEED = -1
_LEAST = {
    "max_num_frames_per_episode": 1,
    "img_height": 1,
    "img_width": 1,
    "stack_num": 1,
    "frameskip": 1,
    "noop_max": 0,
}
_SHARES = ("repeat_action_probability", "continuous_action_threshold")
_OURS = frozenset(("self", "num_envs", "batch_size", "num_threads", "thread_affinity_offset", "autoreset_mode"))


@final
class AtariVectorEnv(FleetVectorEnv, VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Runs Atari games on ale-py's threads.

    Args:
        spec: Of a registered id such as "ALE/Pong-v5".
        num_envs: How many.
        autoreset_mode: When games start again by themselves: "NextStep" or "SameStep".
        threads: How many threads step the games; by default as many as ale-py takes.
        env_kwargs: Arguments of ``ale_py.AtariVectorEnv``, such as ``img_height`` or ``reward_clipping``.
    """

    @remembers_arguments
    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        *,
        threads: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        import ale_py.vector_env  # not before one of its games is asked for

        mode = checked_mode(autoreset_mode)
        if mode is AutoresetMode.DISABLED:
            raise UnsupportedError("autoreset_mode 'Disabled', which ale-py's vector environment does not have")
        checked = _checked({**spec.kwargs, **(env_kwargs or {})}, ale_py.vector_env.AtariVectorEnv)
        self.spec = spec
        games: Any = ale_py.vector_env.AtariVectorEnv(
            **checked, num_envs=num_envs, num_threads=checked_threads(threads) or 0, autoreset_mode=mode
        )
        face = EnvFace(games.single_observation_space, games.single_action_space, {}, None)
        spaces = fleet_spaces([face] * num_envs, "same", mode)
        options = FleetOptions(
            "native: ale-py's own vector environment, which preprocesses observations, steps the games.",
            needs_reset="The environments have not been reset yet.",
            check_reset=_check_reset,
        )
        engine = AtariEngine(games, AtariBlock(spaces), exclusive_for(type(self).__name__))
        super().__init__(spaces, engine, options)


@final
class AtariEngine:
    """ale-py's threads. They step all games together."""

    def __init__(self, games: Any, block: AtariBlock, exclusive: _core.Exclusive) -> None:
        self.block, self.exclusive, self.quick = block, exclusive, NoQuickCalls()
        self._games: Any = games
        self._turn: Any = _Turn(games, len(block.rewards))
        self._order: Order = StepOrder()

    @property
    def is_busy(self) -> bool:
        """Whether ale-py was given actions whose results it still has."""
        return bool(self._turn.is_under_way)

    def begin(self, order: Order) -> None:
        """Hands over the actions of a step; keeps any other order for ``finish``."""
        self._order = order
        if isinstance(order, StepOrder):
            self._turn.begin(self.block.actions)

    def finish(self, timeout: float | None) -> Sequence[Report | None]:  # noqa: ARG002  ale-py knows none
        """Waits for the step, or carries out the order."""
        order = self._order
        if isinstance(order, StepOrder):
            self.block.take_step(*self._turn.end())
        elif isinstance(order, ResetOrder):
            self._reset_games(order)
        else:
            return [_refusal(order)]
        return [None]

    def _reset_games(self, order: ResetOrder) -> None:
        seeds = [_NO_SEED if seed is None else seed for seed in order.seeds]
        chosen = np.array(seeds, np.int64)[order.mask]
        options = {} if order.mask.all() else {"options": {"reset_mask": order.mask}}
        self.block.take_reset(order.mask, *self._games.reset(seed=chosen, **options))

    def prepare_steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:  # noqa: ARG002
        """A step of all games; of fewer there is none."""
        self._check_everyone(rows, "send actions to all of them")
        return partial(self.begin, StepOrder())

    def prepare_resets(self, rows: Rows, order: ResetOrder) -> Callable[[], None]:
        """A reset of all games; of fewer there is none by tickets, as games come back together."""
        self._check_everyone(rows, "async_reset all of them, reset some by mask with reset()")
        return partial(self.begin, order)

    def _check_everyone(self, rows: Rows, instead: str) -> None:
        if len(rows) != len(self.block.rewards):
            raise ValueError(
                f"backend='native' steps all Atari environments together: {instead}, or use backend='process'. Nothing "
                "was sent."
            )

    def receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:
        """All games: they come back together."""
        return np.arange(count), [*self.finish(timeout), *[None] * (count - 1)]

    def discard(self) -> None:
        """Waits for the step under way and forgets it."""
        if self._turn.is_under_way:
            self._turn.end()

    def recover(self) -> None:
        """Nothing dies here but the caller itself."""
        self.discard()

    def close(self, timeout: float, terminate: bool) -> None:  # noqa: ARG002  a step takes milliseconds
        """Ends the games and their threads."""
        self.discard()
        self._games.close()
        self._games, self._turn = None, None  # the threads end with the last reference

    def interrupt(self) -> None:
        """Nothing can: a step takes milliseconds."""

    def worker_of(self, env_index: int) -> None:  # noqa: ARG002
        """No worker: the caller's own process."""
        return


def _check_reset(seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]) -> None:
    for index, seed in enumerate(seeds):
        if seed is not None and seed > _MOST_SEED:
            raise ValueError(f"The seed of environment {index} must be below 2**31 for ale-py, got {seed}.")
    unknown = sorted({name for each in options for name in each or ()})
    if unknown:
        raise ValueError(f"Atari environments know no reset options but reset_mask, got {', '.join(unknown)}.")


@final
class _Turn:
    """One step of all games. To ask twice for its results, or for those of a step never begun, is to wait for ever.

    So a Ctrl-C must not come between a call of ale-py's and the note that it was made. Both happen inside one call of
    compiled code here (``extend``), which Python does not interrupt.
    """

    def __init__(self, games: Any, num_envs: int) -> None:
        self._games = games
        self._strength = np.ones(num_envs, np.float32)
        self._begun: list[None] = []
        self._results: list[tuple[Any, ...]] = []

    @property
    def is_under_way(self) -> bool:
        """Whether ale-py was given actions whose results it still has."""
        return len(self._begun) > len(self._results)

    def begin(self, actions: Array) -> None:
        """Hands over the actions."""
        self._begun.clear()
        self._results.clear()
        if self._games.continuous:
            with signals_blocked():  # there is Python between this call and compiled code
                self._begun.append(self._games.send(actions))
        else:
            self._begun.extend(map(self._games.ale.send, (actions,), (self._strength,)))

    def end(self) -> tuple[Any, ...]:
        """Waits for the results."""
        if self.is_under_way:
            self._results.extend(starmap(self._games.ale.recv, ((),)))
        return self._results[-1]


def has_atari(spec: EnvSpec) -> bool:
    """Whether this is a game that ale-py has a vector environment for."""
    return spec.vector_entry_point == ENTRY_POINT


def make_atari(
    spec: EnvSpec, num_envs: int, vector_kwargs: Mapping[str, Any], env_kwargs: Mapping[str, Any]
) -> AtariVectorEnv:
    """What ``make_vec`` makes; an UnsupportedError names what ale-py cannot do."""
    # Observations are always fresh arrays: whoever would take views gets more than asked for.
    implied = (
        ("observation_mode", "same"),
        ("copy", True),
        ("copy", False),
        ("first_ready", None),
        ("batch_size", None),
    )
    rest = {name: value for name, value in vector_kwargs.items() if (name, value) not in implied}
    unknown = sorted(rest.keys() - {"autoreset_mode", "threads"})
    if unknown:
        raise UnsupportedError(f"the vector_kwargs argument {unknown[0]!r} for Atari")
    return AtariVectorEnv(spec, num_envs, env_kwargs=env_kwargs, **rest)


def _checked(env_kwargs: dict[str, Any], games: type) -> dict[str, Any]:
    defaults = {name: each.default for name, each in inspect.signature(games).parameters.items() if name not in _OURS}
    unknown = sorted(env_kwargs.keys() - defaults.keys())
    if unknown:
        known = ", ".join(name for name in defaults if name != "game")
        raise UnsupportedError(f"the argument {unknown[0]!r} of Atari games; ale-py's vector environment takes {known}")
    for name, value in env_kwargs.items():
        if name in _LEAST and not (is_integer(value) and value >= _LEAST[name]):
            raise ValueError(f"{name} must be an integer of {_LEAST[name]} or more, got {value!r}.")
        if name in _SHARES and not (isinstance(value, int | float | np.number) and 0 <= value <= 1):
            raise ValueError(f"{name} must be a number between 0 and 1, got {value!r}.")
        if isinstance(defaults[name], bool) and not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {value!r}.")
    return {name: int(value) if name in _LEAST else value for name, value in env_kwargs.items()}


def _refusal(order: CallOrder | SetAttrOrder) -> Report:
    method = "call" if isinstance(order, CallOrder) else "set_attr"
    error = AttributeError(
        f"ale-py's vector environment shows nothing of its single games, so there is no {order.name!r}. Use "
        "backend='sync' or 'process' for that."
    )
    asked: npt.NDArray[np.intp] = np.flatnonzero(order.mask)
    return Report(failures=[Failure.of(error, env, method, order.name) for env in asked.tolist()])
