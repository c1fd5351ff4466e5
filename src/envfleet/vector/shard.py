"""Some environments in one place: THE Python home of autoreset.

A shard runs its environments one after another and writes what they return into their rows of the block.
It does not know whether it lives in the caller's thread, in a worker process or on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, final

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from envfleet import _core
from envfleet.vector.arguments import own_copy
from envfleet.vector.buffers import Array, Columns, LayoutError, SpaceLayout, cast
from envfleet.vector.failures import Failure
from envfleet.vector.infos import Info, InfoWriter
from envfleet.vector.member import AnyEnv, Member
from envfleet.vector.orders import CallOrder, Order, Report, ResetOrder, SetAttrOrder, StepOrder

EnvFn: TypeAlias = Callable[[], AnyEnv]

_SCALAR = ()
_FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class ShardRows:
    """The rows of the block that belong to a shard: views, one row an environment."""

    observation_arrays: list[Array]
    action_arrays: list[Array]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    info_rows: npt.NDArray[np.uint8]
    info_kinds: npt.NDArray[np.uint8]


def build_envs(env_fns: Iterable[EnvFn], first_index: int) -> tuple[list[AnyEnv], Failure | None]:
    """Makes the environments; after a failure those made so far are closed."""
    envs: list[AnyEnv] = []
    for index, env_fn in enumerate(env_fns, first_index):
        try:
            envs.append(env_fn())
        except Exception as error:
            failure = Failure.of(error, index, "make")
            close_envs(envs)
            return [], failure
    return envs, None


def close_envs(envs: Iterable[AnyEnv], first_index: int = 0) -> list[Failure]:
    """Closes all environments, whatever some of them raise."""
    failures = []
    for index, env in enumerate(envs, first_index):
        try:
            env.close()
        except Exception as error:
            failures.append(Failure.of(error, index, "close"))
    return failures


@final
class Shard:
    """Environments ``first_index`` and following, the rows they write to, and how they are reset."""

    def __init__(
        self,
        envs: Sequence[AnyEnv],
        first_index: int,
        rows: ShardRows,
        observations: SpaceLayout,
        actions: SpaceLayout,
        autoreset_mode: AutoresetMode,
    ) -> None:
        self._members = [Member(env) for env in envs]
        self._exposed = False
        self._first_index = first_index
        self._rows = rows
        self._observations, self._actions = observations, actions
        self._observation_columns: Columns = observations.columns(rows.observation_arrays, len(envs))
        self._action_columns: Columns = actions.columns(rows.action_arrays, len(envs))
        self._write_observation = observations.writer(self._observation_columns)
        self._info_writer = InfoWriter(rows.info_rows, rows.info_kinds)
        self._publish_quickly = self._quick_publisher()
        self._reset_due = [False] * len(envs)
        self._end_episode = {
            AutoresetMode.NEXT_STEP: self._reset_at_next_step,
            AutoresetMode.SAME_STEP: self._reset_at_once,
            AutoresetMode.DISABLED: self._leave_finished,
        }[autoreset_mode]

    def _quick_publisher(self) -> Callable[[int, Any, Any, Any], bool]:
        if isinstance(self._write_observation, _core.RowWriter):
            return _core.RowPublisher(self._write_observation, self._rows.rewards, self._info_writer.packer).put
        return lambda *_: False

    @property
    def envs(self) -> list[AnyEnv]:
        """The environments as the user made them, for anyone to look at until the next step."""
        self._expose()
        return [member.env for member in self._members]

    def _expose(self) -> None:
        for member in self._members:
            member.before_access()
        self._exposed = True

    def _conceal(self) -> None:
        for member in self._members:
            member.after_access()
        self._exposed = False

    def execute(self, order: Order) -> Report | None:
        """Carries out an order; None when everything it has to say lies in the block."""
        if type(order) is StepOrder:
            return self.step(order.loose_actions)
        if isinstance(order, ResetOrder):
            return self._reset(order)
        if isinstance(order, CallOrder):
            return self._call(order)
        assert isinstance(order, SetAttrOrder)
        return self._set_attr(order)

    def step(self, loose_actions: Sequence[Sequence[Any]] = ()) -> Report | None:
        """Steps every environment with the actions that lie in the block."""
        actions = self._take_actions(loose_actions)
        members, reset_due, publish_quickly = self._members, self._reset_due, self._publish_quickly
        failures: list[Failure] = []
        self._info_writer.begin()
        self._rows.terminated[:] = self._rows.truncated[:] = False
        # The hot loop: flat, because a function call costs as much as publishing a row.
        for row, action in enumerate(actions):
            try:
                if reset_due[row]:
                    reset_due[row] = False
                    observation, info = members[row].reset()
                    reward = 0.0
                else:
                    observation, reward, terminated, truncated, info = members[row].step(action)
                    if terminated is not False or truncated is not False:
                        observation, info = self._flag(row, terminated, truncated, observation, info)
                if not publish_quickly(row, observation, reward, info):
                    self._publish(row, observation, reward, info)
            except (Exception, SystemExit) as error:
                failures.append(Failure.of(error, self._first_index + row, "step"))
        return self._report(failures)

    def _flag(self, row: int, terminated: Any, truncated: Any, observation: Any, info: Any) -> tuple[Any, Any]:
        """Notes that an episode has ended, if it has; returns what is to be published."""
        ends = _as_bool(terminated, "terminated"), _as_bool(truncated, "truncated")
        if any(ends):
            observation, info = self._end_episode(row, observation, info)
            self._rows.terminated[row], self._rows.truncated[row] = ends
        return observation, info

    def _publish(self, row: int, observation: Any, reward: Any, info: Any) -> None:
        """Publishes whatever the quick way does not know, or raises the error that says what is wrong with it."""
        self._write_observation(row, observation)
        self._rows.rewards[row] = _as_number(reward)
        if not isinstance(info, dict):
            _refuse_info(info)
        if info:
            self._info_writer.put(row, info)

    def _take_actions(self, loose_actions: Sequence[Sequence[Any]]) -> list[Any]:
        if self._exposed:
            self._conceal()
        for leaf, values in zip(self._actions.loose_leaves, loose_actions, strict=True):
            self._action_columns[leaf] = list(values)
        return self._actions.rows(self._action_columns, len(self._members))

    def _reset_at_next_step(self, row: int, observation: Any, info: Info) -> tuple[Any, Info]:
        self._reset_due[row] = True
        return observation, info

    def _reset_at_once(self, row: int, observation: Any, info: Info) -> tuple[Any, Info]:
        if not isinstance(info, dict):
            _refuse_info(info)
        # Copied before the reset: an environment may write what comes next into the same arrays and dicts.
        final = {"final_obs": self._observations.copy_value(observation), "final_info": own_copy(info)}
        observation, reset_info = self._members[row].reset()
        return observation, {**final, **reset_info}

    def _leave_finished(self, row: int, observation: Any, info: Info) -> tuple[Any, Info]:  # noqa: ARG002
        return observation, info

    def _reset(self, order: ResetOrder) -> Report | None:
        failures: list[Failure] = []
        self._info_writer.begin()
        self._info_writer.announce_again()
        for row in np.flatnonzero(order.mask).tolist():
            member = self._members[row]
            try:
                self._reset_due[row] = False
                observation, info = member.reset(seed=order.seeds[row], options=order.options[row])
                member.after_access()
                self._rows.terminated[row] = self._rows.truncated[row] = False
                self._publish(row, observation, 0.0, info)
            except (Exception, SystemExit) as error:
                failures.append(Failure.of(error, self._first_index + row, "reset"))
        return self._report(failures)

    def _report(self, failures: list[Failure]) -> Report | None:
        infos = self._info_writer.end()
        loose = [list(self._observation_columns[leaf]) for leaf in self._observations.loose_leaves]
        if infos is None and not failures and not loose:
            return None
        return Report(loose_observations=loose, infos=infos, failures=failures)

    def _call(self, order: CallOrder) -> Report:
        report, envs = Report(), self.envs
        for row in np.flatnonzero(order.mask).tolist():
            with _Catch(report, self._first_index + row, "call", order.name):
                value = envs[row].get_wrapper_attr(order.name)
                result = value(*order.args, **order.kwargs) if callable(value) else value
                report.results.append((self._first_index + row, result))
        return report

    def _set_attr(self, order: SetAttrOrder) -> Report:
        report, envs = Report(), self.envs
        for row in np.flatnonzero(order.mask).tolist():
            with _Catch(report, self._first_index + row, "set_attr", order.name):
                envs[row].set_wrapper_attr(order.name, order.values[row])
        return report

    def close(self) -> list[Failure]:
        """Closes all environments; returns what they raised."""
        return close_envs(self.envs, self._first_index)


class _Catch:
    """Notes an exception as a failure of one environment and goes on."""

    def __init__(self, report: Report, env_index: int, method: str, name: str) -> None:
        self._report, self._whose = report, (env_index, method, name)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, Exception | SystemExit):
            return False
        self._report.failures.append(Failure.of(error, *self._whose))
        return True


def _refuse_info(info: Any) -> NoReturn:
    raise LayoutError(f"info: expected a dict, got {type(info).__name__} {info!r:.80}")


def _as_number(reward: Any) -> Any:
    """A reward as a number; arrays of one element are what many environments return."""
    if isinstance(reward, float):
        return reward
    if isinstance(reward, np.ndarray) and reward.shape == (1,):
        reward = reward[0]
    return cast(reward, _SCALAR, _FLOAT64, "reward")


def _as_bool(flag: Any, name: str) -> bool:
    """An end-of-episode flag as a bool; numbers count as in Python."""
    if isinstance(flag, bool | np.bool_):
        return bool(flag)
    array = np.asarray(flag)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise LayoutError(f"{name}: expected a bool, got {flag!r}")
    return bool(array.item())
