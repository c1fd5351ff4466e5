"""JaxEngine: orders become calls of compiled functions, one for all environments."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NoReturn, final

import jax
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode

from envfleet import _core
from envfleet.device.batch import DeviceBatch
from envfleet.device.kernels import Shown, Tree
from envfleet.device.results import Results
from envfleet.errors import UnsupportedError
from envfleet.native.buffers import check_range
from envfleet.vector.engine import CallOrder, Order, Report, ResetOrder, Rows, SetAttrOrder, StepOrder, StepResult
from envfleet.vector.failures import Failure
from envfleet.vector.infos import Info
from envfleet.vector.layout import LayoutError, SpaceLayout
from envfleet.vector.spaces import FleetSpaces

NO_TICKETS = (
    "backend='jax' steps all environments in one call of compiled code, so none is ready before the others: there is "
    "no first_ready, send(), recv() or async_reset() there. Use step() and reset()."
)


@final
class DeviceBlock:
    """What the fleet shows of a batch."""

    def __init__(self, batch: DeviceBatch, spaces: FleetSpaces, results: Results) -> None:
        self._batch, self._results = batch, results
        self._layout = SpaceLayout(spaces.single_action_space, "action")
        self._space, self._num_envs = spaces.single_action_space, spaces.num_envs
        self.finished, self.out, self.terminated, self.truncated = np.zeros((4, spaces.num_envs), np.bool_)
        self.actions: Tree = None
        self.shown: Shown | None = None
        self.reset_turn: tuple[Tree, npt.NDArray[np.bool_]] | None = None

    def show(self, shown: Shown) -> None:
        """Takes over what an ordinary step gave, after which the fleet asks which episodes have ended."""
        self.shown = shown
        self.terminated, self.truncated = np.asarray(shown.terminated), np.asarray(shown.truncated)

    def store_actions(
        self,
        actions: Any,
        rows: Rows | None = None,  # noqa: ARG002
        *,
        were_tried: bool = False,  # noqa: ARG002
    ) -> list[list[Any]]:
        """Checks all actions and keeps them for the turn."""
        self.actions = self.checked(actions)
        return []

    def checked(self, actions: Any) -> Tree:
        """The actions as the compiled step takes them. Of those on a device only shape and type can be checked."""
        if isinstance(actions, jax.Array):
            return self._checked_on_device(actions)
        if hasattr(actions, "__dlpack__") and not isinstance(actions, np.ndarray):
            return self._checked_on_device(jax.dlpack.from_dlpack(actions))
        columns = self._layout.checked(actions, self._num_envs)
        if isinstance(self._space, Discrete | MultiDiscrete):
            self._check_range(np.asarray(columns[0]), self._space)
        return self._layout.batch(columns, False)

    def _check_range(self, actions: npt.NDArray[Any], space: Discrete | MultiDiscrete) -> None:
        nobody = np.zeros(self._num_envs, np.bool_)
        try:
            check_range(actions, space, awaits_reset=nobody)
        except LayoutError:
            now = self._batch.now
            if now is None or now.carry.ended is None:
                raise
            check_range(actions, space, awaits_reset=np.asarray(now.carry.ended))

    def _checked_on_device(self, actions: jax.Array) -> jax.Array:
        shape, dtype = self._space.shape, self._space.dtype
        if shape is None or dtype is None:
            raise LayoutError(f"action: {self._space} needs one array per leaf, got one array")
        if actions.shape != (self._num_envs, *shape):
            raise LayoutError(f"action: expected the shape {(self._num_envs, *shape)}, got {actions.shape}")
        if not np.can_cast(actions.dtype, dtype, "same_kind"):
            raise LayoutError(f"action: expected {dtype}, got {actions.dtype}")
        return actions

    def observations(self, copy: bool) -> Any:
        """The batched observations."""
        assert self._batch.now is not None
        return self._results.observations(self._batch.now.observations, copy)

    def reset_results(self, reports: Sequence[Report | None], copy: bool) -> tuple[Any, Info]:  # noqa: ARG002
        """What ``reset`` returns of the turn that just ended."""
        assert self._batch.now is not None
        assert self.reset_turn is not None
        info, mask = self.reset_turn
        return self._results.of_reset(self._batch.now.observations, info, mask, copy)

    def step_results(self, reports: Sequence[Report | None], copy: bool) -> StepResult:  # noqa: ARG002
        """What ``step`` returns of the turn that just ended."""
        assert self.shown is not None
        return self._results.of_step(self.shown, copy)

    def ticket_results(self, rows: Rows, reports: Sequence[Report | None]) -> NoReturn:  # noqa: ARG002
        """There are no tickets."""
        raise UnsupportedError(NO_TICKETS)

    def parameter_cells(self) -> npt.NDArray[np.float64]:
        """The parameters drawn for the present episodes, as numbers."""
        return self._batch.cells()


@final
class DeviceQuickCalls:
    """A whole step, if all is plain: checked actions in, results out."""

    send = recv = None

    def __init__(self, engine: JaxEngine, mode: AutoresetMode) -> None:
        self.ready = False
        self._engine = engine
        self._may_be_quick = mode is not AutoresetMode.DISABLED
        self._error: BaseException | None = None

    def step(self, actions: Any, copy: bool) -> StepResult | None:
        """None if it has to be taken the ordinary way, which also says what is wrong with the actions."""
        if not self.ready or not self._may_be_quick:
            return None
        engine = self._engine
        with engine.exclusive:
            try:
                checked = engine.block.checked(actions)
            except LayoutError:
                return None
            try:
                engine.block.shown = shown = engine.batch.step(checked)
                return engine.results.of_step(shown, copy)
            except BaseException as error:
                self._error, self.ready = error, False
                raise

    def take_error(self) -> BaseException | Failure | None:
        """How the last quick call ended, if it did not end well; forgets it."""
        error, self._error = self._error, None
        return error


@final
class JaxEngine:
    """All environments of a fleet, on one device."""

    is_busy = False

    def __init__(
        self, batch: DeviceBatch, spaces: FleetSpaces, results: Results, exclusive: _core.Exclusive, spec: Any
    ) -> None:
        self.batch, self.results, self.exclusive = batch, results, exclusive
        self.block = DeviceBlock(batch, spaces, results)
        self.quick = DeviceQuickCalls(self, spaces.autoreset_mode)
        self._spaces, self._spec = spaces, spec
        self._order: Order = StepOrder()

    def begin(self, order: Order) -> None:
        """Keeps the order for ``finish``."""
        self._order = order

    def finish(self, timeout: float | None) -> Sequence[Report | None]:  # noqa: ARG002  nothing to wait for
        """Carries it out."""
        order, block = self._order, self.block
        if isinstance(order, StepOrder):
            block.show(self.batch.step(block.actions))
            return [None]
        if isinstance(order, ResetOrder):
            block.reset_turn = self.batch.reset(order.seeds, order.mask), order.mask
            return [None]
        return [self._call(order) if isinstance(order, CallOrder) else self._set_attr(order)]

    def prepare_steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:  # noqa: ARG002
        """There are no tickets."""
        raise UnsupportedError(NO_TICKETS)

    def prepare_resets(self, rows: Rows, order: ResetOrder) -> Callable[[], None]:  # noqa: ARG002
        """There are no tickets."""
        raise UnsupportedError(NO_TICKETS)

    def receive(self, count: int, timeout: float | None) -> NoReturn:  # noqa: ARG002
        """There are no tickets."""
        raise UnsupportedError(NO_TICKETS)

    def discard(self) -> None:
        """Nothing is begun that is not finished."""

    def recover(self) -> None:
        """Nothing dies here but the caller itself."""

    def close(self, timeout: float, terminate: bool) -> None:  # noqa: ARG002
        """Closes what draws, and lets go of the arrays."""
        self.quick.ready = False
        self.batch.env.close()
        self.batch.now = None

    def interrupt(self) -> None:
        """Nothing can: the other thread is inside compiled code."""

    def worker_of(self, env_index: int) -> None:  # noqa: ARG002
        """No worker: the caller's own process."""
        return

    # -- calls and attributes -------------------------------------------------------------------------

    def _call(self, order: CallOrder) -> Report:
        report = Report()
        for env in np.flatnonzero(order.mask).tolist():
            try:
                report.results.append((env, self._answer(env, order)))
            except Exception as error:
                report.failures.append(Failure.of(error, env, "call", order.name))
        return report

    def _answer(self, env: int, order: CallOrder) -> Any:
        if order.function is not None or order.args or order.kwargs:
            raise self._no_attribute(order.name, "no method to call with arguments")
        getter = _GETTERS.get(order.name)
        if getter is not None:
            return getter(self, env)
        values = self.batch.values_of(env)
        if order.name not in values:
            raise self._no_attribute(order.name, "no attribute")
        value = np.asarray(values[order.name])
        return value.item() if value.ndim == 0 else value

    def _no_attribute(self, name: str, what: str) -> AttributeError:
        names = [*self.batch.env.parameters, *_GETTERS]
        return AttributeError(
            f"An environment of {self.batch.env.name} has {what} {name!r}; it has {', '.join(names)}. It is "
            "functional: there is no Python object of it."
        )

    def _set_attr(self, order: SetAttrOrder) -> Report:
        rows = np.flatnonzero(order.mask).tolist()
        try:
            self._set(order.name, rows, [order.values[row] for row in rows])
            return Report()
        except Exception as error:
            return Report(failures=[Failure.of(error, rows[0], "set_attr", order.name)])

    def _set(self, name: str, rows: Sequence[int], values: Sequence[Any]) -> None:
        if name in self.batch.randomize:
            raise AttributeError(f"{name} is drawn anew for every episode (randomize_on='reset'): it cannot be set.")
        if name not in self.batch.env.parameters:
            raise self._no_attribute(name, "no parameter that can be set called")
        for value in values:
            if np.asarray(value).dtype.kind not in "biuf":
                raise TypeError(f"{name} of {self.batch.env.name} must be a number, got {reprlib.repr(value)}.")
        self.batch.set_value(name, rows, values)

    def _state(self, env: int) -> Any:
        if self.batch.now is None:
            raise AttributeError(f"{self.batch.env.name} has no state before the first reset.")
        return self.batch.row(env).carry.states

    def _elapsed(self, env: int) -> int:
        return 0 if self.batch.now is None else int(self.batch.now.carry.elapsed[env])

    def _render(self, env: int) -> Any:
        if self._spaces.render_mode is None:
            raise ValueError("Pass render_mode='rgb_array' to make_vec to render.")
        return np.asarray(self.batch.env.render(self._state(env), self.batch.values_of(env)))


_GETTERS: dict[str, Callable[[JaxEngine, int], Any]] = {
    "state": JaxEngine._state,
    "spec": lambda self, _: deepcopy(self._spec),
    "observation_space": lambda self, _: deepcopy(self._spaces.single_observation_space),
    "action_space": lambda self, _: deepcopy(self._spaces.single_action_space),
    "metadata": lambda self, _: dict(self.batch.env.metadata),
    "np_random_seed": lambda self, env: self.batch.seeds[env],
    "render": JaxEngine._render,
    "render_mode": lambda self, _: self._spaces.render_mode,
    "_elapsed_steps": JaxEngine._elapsed,
}
