"""Some environments in one place: THE Python home of autoreset.

A shard runs its environments one after another and writes what they return into their rows of the block.
It does not know whether it lives in the caller's thread, in a worker process or on another machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, final

import numpy as np
from gymnasium.vector import AutoresetMode

from envfleet import _core
from envfleet.redraw import Redraw, RedrawnEnv, StreamRecord, redrawn
from envfleet.vector.arguments import own_copy
from envfleet.vector.block import Activity, BlockRows
from envfleet.vector.engine import CallOrder, Options, Order, Report, ResetOrder, SetAttrOrder, StepOrder
from envfleet.vector.failures import START_OVER, Failure
from envfleet.vector.fused_env import AnyEnv, FusedEnv, ask, close_envs
from envfleet.vector.infos import Info, InfoWriter, info_digest
from envfleet.vector.layout import Columns, SpaceLayout, as_bool, as_number, check_no_nan, refuse_info
from envfleet.vector.pickling import UNKNOWN
from envfleet.vector.recovery import RestartBudget, ShardTask, restart_seed
from envfleet.vector.replay import LONGEST, EpisodeStarts, Replay, Stage

# What a row's next step is to do, if it is not to step.
_NOTHING, _RESET, _TELL_OF_RESTART = 0, 1, 2


def split(num_envs: int, shards: int) -> list[tuple[int, int]]:
    """Contiguous shares ``(first, last + 1)`` that differ by one environment at most."""
    edges = [num_envs * shard // shards for shard in range(shards + 1)]
    return list(pairwise(edges))


@final
class Shard:
    """Some environments, the rows they write to, and how they are reset; ``envs`` are those that the task asks for."""

    def __init__(
        self,
        task: ShardTask,
        envs: Sequence[AnyEnv],
        rows: BlockRows,
        observations: SpaceLayout,
        actions: SpaceLayout,
        autoreset_mode: AutoresetMode,
    ) -> None:
        self._task, self._first_index = task, task.first_index
        self._rows = rows
        self._seeds = list(task.seeds) or [None] * len(envs)
        self._attributes = {row: dict(named) for row, named in task.attributes.items()}
        for row, env in enumerate(envs):
            self._set_again(row, env)
        self._budgets = [RestartBudget(task.policy) for _ in envs]
        are_lost = [bool(task.cause) and row not in task.replays for row in range(len(envs))]
        self._fused = [self._fuse(row, env, is_lost=are_lost[row]) for row, env in enumerate(envs)]
        self._starts = EpisodeStarts(rows.episodes, rows.starts) if task.policy.restart else None
        self._causes = [task.cause] * len(envs)
        self._due = np.array([_TELL_OF_RESTART if is_lost else _NOTHING for is_lost in are_lost], np.uint8)
        self._exposed = False
        self._autoreset_mode = autoreset_mode
        self._progress = _core.Progress(rows.progress[:1])
        rows.progress[1] = Activity.ANYTHING
        rows.touched[:] = False
        self._observations, self._actions = observations, actions
        self._observation_columns: Columns = observations.columns(rows.observation_arrays, len(envs))
        self._action_columns: Columns = actions.columns(rows.action_arrays, len(envs))
        self._write_observation = observations.writer(self._observation_columns, rows.pages)
        self._info_writer = InfoWriter(rows.info_rows, rows.info_kinds)
        is_compared = task.notes_digests and not observations.loose_leaves
        self._digests = _core.Digests(rows.observation_arrays, rows.rewards, rows.digests) if is_compared else None
        # Digests of the infos of resets whose rows are yet to be published.
        self._begun: dict[int, int] = {}
        self._stepper = self._make_stepper()
        self._end_episode = {
            AutoresetMode.NEXT_STEP: self._reset_at_next_step,
            AutoresetMode.SAME_STEP: self._reset_at_once,
            AutoresetMode.DISABLED: self._leave_finished,
        }[autoreset_mode]

    def _fuse(self, row: int, env: AnyEnv, *, is_lost: bool) -> FusedEnv:
        seed = self._next_seed(row) if is_lost else None
        env_fn = self._task.env_fns[row]
        if not isinstance(env_fn, RedrawnEnv):
            return FusedEnv(env, seed)
        record = StreamRecord(self._rows.parameters[row], self._rows.streams[row], self._rows.episodes[row : row + 1])
        return FusedEnv(env, seed, Redraw(env_fn, record, int(self._rows.restarts[row]) if is_lost else 0))

    def _make_stepper(self) -> _core.RowStepper:
        rows, packer, writers = self._rows, self._info_writer.packer, self._observations.plain_writers
        plain = writers(self._observation_columns, rows.pages)
        publisher = (
            _core.RowPublisher(plain, rows.rewards, packer, self._progress, self._task.policy.check_nan)
            if plain
            else None
        )
        actions = rows.action_arrays[0] if self._actions.is_single_array else None
        flags = rows.terminated, rows.truncated, rows.restarted
        stepper = _core.RowStepper(publisher, packer, self._progress, actions, *flags, self._due, self._digests)
        for row, fused in enumerate(self._fused):
            stepper.place(row, fused.step)
        return stepper

    @property
    def envs(self) -> list[AnyEnv]:
        """The environments as the user made them, for anyone to look at until the next step."""
        self._expose()
        return [fused.env for fused in self._fused]

    def _expose(self) -> None:
        for fused in self._fused:
            fused.before_access()
        self._exposed = True

    def _conceal(self) -> None:
        for fused in self._fused:
            fused.after_access()
        self._exposed = False

    def execute(self, order: Order) -> Report | None:
        """Carries out an order; None when everything it has to say lies in the block."""
        if type(order) is StepOrder:
            return self.step(order.loose_actions)
        if isinstance(order, ResetOrder):
            return self._reset(order)
        assert isinstance(order, CallOrder | SetAttrOrder)
        report = ask(order, self.envs, self._first_index, self._rows.touched, self._progress)
        if isinstance(order, SetAttrOrder):
            self._note_attributes(order, {failure.env_index for failure in report.failures})
        self._progress.enter(len(self._fused))
        return report

    def _note_attributes(self, order: SetAttrOrder, failed: Container[int]) -> None:
        if order.name in redrawn(self._task.env_fns):  # holds for the present episode, the next one draws its own
            return
        for row in np.flatnonzero(order.mask).tolist():
            if self._first_index + row not in failed:
                self._attributes.setdefault(row, {})[order.name] = order.values[row]

    def _set_again(self, row: int, env: AnyEnv) -> None:
        """Sets on an environment that takes another's place what ``set_attr`` has set on that one."""
        for name, value in self._attributes.get(row, {}).items():
            env.set_wrapper_attr(name, value)

    def step(self, loose_actions: Sequence[Sequence[Any]] = ()) -> Report | None:
        """Steps every environment with the actions that lie in the block."""
        if self._exposed:
            self._conceal()
        actions = None if self._actions.is_single_array else self._take_actions(loose_actions)
        failures: list[Failure] = []
        try:
            stopped = self._stepper.run_all(actions)
            if stopped is None:
                return self._report(failures) if self._observations.loose_leaves else None
            self._take_result(*stopped)
        except (Exception, SystemExit) as error:
            self._fail_step(error, failures)
        self._step_rows(self._stepper.row + 1, failures)
        return self._report(failures)

    def step_row(self, row: int, loose_action: Sequence[Any]) -> Report | None:
        """Steps one environment. ``loose_action``: the values of the action's loose leaves, if there are new ones."""
        if self._exposed:
            self._conceal()
        for leaf, value in zip(self._actions.loose_leaves, loose_action, strict=False):
            self._action_columns[leaf][row] = value
        self._stepper.aim(row, [self._actions.row(self._action_columns, row)])
        self._begin_row(row)
        failures: list[Failure] = []
        self._step_rows(row, failures)
        return self._report(failures, row)

    def reset_row(self, row: int, seed: int | None, options: dict[str, Any] | None) -> Report | None:
        """Resets one environment."""
        self._begin_row(row)
        self._info_writer.announce_again()
        failures: list[Failure] = []
        self._reset_environment(row, seed, options, failures)
        return self._report(failures, row)

    def _begin_row(self, row: int) -> None:
        self._progress.enter(row)
        self._info_writer.begin_row(row)
        self._rows.terminated[row] = self._rows.truncated[row] = self._rows.restarted[row] = False

    def _step_rows(self, row: int, failures: list[Failure]) -> None:
        """Steps the rows from ``row`` on, one per action; compiled code does those that are plain."""
        while True:
            try:
                stopped = self._stepper.run(row)
                if stopped is None:
                    return
                self._take_result(*stopped)
            except (Exception, SystemExit) as error:
                self._fail_step(error, failures)
            row = self._stepper.row + 1

    def _fail_step(self, error: BaseException, failures: list[Failure]) -> None:
        row = self._stepper.row
        self._fail(row, Failure.of(error, self._first_index + row, "step"), failures, self._tell_of_restart)

    def _take_result(self, row: int, result: Any) -> None:
        """Publishes what a step returned, whatever it is; where something else was due, does that instead."""
        if self._due[row] == _TELL_OF_RESTART:
            self._tell_of_restart(row)
        elif self._due[row] == _RESET:
            self._due[row] = _NOTHING
            observation, info = self._reset_member(row)
            self._publish(row, observation, 0.0, info)
        else:
            observation, reward, terminated, truncated, info = result
            observation, info = self._flag(row, terminated, truncated, observation, info)
            self._publish(row, observation, reward, info)

    def _flag(self, row: int, terminated: Any, truncated: Any, observation: Any, info: Any) -> tuple[Any, Any]:
        """Notes that an episode has ended, if it has; returns what is to be published."""
        ends = as_bool(terminated, "terminated"), as_bool(truncated, "truncated")
        if any(ends):
            if self._autoreset_mode is AutoresetMode.SAME_STEP:
                self._write_observation(row, observation)  # checks it: what is published next is another one
            observation, info = self._end_episode(row, observation, info)
            self._rows.terminated[row], self._rows.truncated[row] = ends
        return observation, info

    def _publish(self, row: int, observation: Any, reward: Any, info: Any) -> None:
        """Publishes whatever the quick way does not know, or raises the error that says what is wrong with it."""
        number = as_number(reward)
        if self._task.policy.check_nan:
            check_no_nan(np.asarray(number), "reward")
        self._write_observation(row, observation)
        self._publish_rest(row, number, info)

    def _publish_rest(self, row: int, reward: Any, info: Any) -> None:
        """Publishes everything but the observation."""
        self._rows.rewards[row] = reward
        if not isinstance(info, dict):
            refuse_info(info)
        if info:
            self._info_writer.put(row, info)
        if self._digests is not None:
            self._note_shown(row, info, self._digests)
        self._progress.enter(row + 1)

    def _note_shown(self, row: int, info: Info, digests: _core.Digests) -> None:
        begun = self._begun.pop(row, None)
        if begun is not None:  # whatever else the row tells belongs to the episode before
            digests.begin(row, begun)
            return
        terminated, truncated = bool(self._rows.terminated[row]), bool(self._rows.truncated[row])
        digests.add(row, terminated, truncated, self._info_writer.digest(row, info))

    def _take_actions(self, loose_actions: Sequence[Sequence[Any]]) -> list[Any]:
        for leaf, values in zip(self._actions.loose_leaves, loose_actions, strict=True):
            self._action_columns[leaf] = list(values)
        return self._actions.rows(self._action_columns, len(self._fused))

    def _reset_at_next_step(self, row: int, observation: Any, info: Info) -> tuple[Any, Info]:
        self._due[row] = _RESET
        return observation, info

    def _reset_at_once(self, row: int, observation: Any, info: Info) -> tuple[Any, Info]:
        if not isinstance(info, dict):
            refuse_info(info)
        # Copied before the reset: an environment may write what comes next into the same arrays and dicts.
        final = {"final_obs": self._observations.copy_value(observation), "final_info": own_copy(info)}
        observation, reset_info = self._reset_member(row)
        return observation, {**final, **reset_info}

    def _leave_finished(self, row: int, observation: Any, info: Info) -> tuple[Any, Info]:  # noqa: ARG002
        return observation, info

    def _reset(self, order: ResetOrder) -> Report | None:
        failures: list[Failure] = []
        self._info_writer.begin()
        self._info_writer.announce_again()
        self._rows.restarted[:] = False
        for row in np.flatnonzero(order.mask).tolist():
            self._reset_environment(row, order.seeds[row], order.options[row], failures)
        return self._report(failures)

    def _reset_environment(
        self, row: int, seed: int | None, options: dict[str, Any] | None, failures: list[Failure]
    ) -> None:
        def reset(row: int) -> None:
            if seed is not None:  # also if it had to be made again: restarts count from the time it was given
                self._seeds[row], self._rows.restarts[row] = seed, 0
            restarted = self._due[row] == _TELL_OF_RESTART
            self._due[row] = _NOTHING
            observation, info = self._reset_member(row, seed, options)
            self._fused[row].after_access()
            self._rows.terminated[row] = self._rows.truncated[row] = False
            self._rows.restarted[row] = restarted
            self._publish(row, observation, 0.0, {**info, **self._restart_info(row)} if restarted else info)

        self._progress.enter(row)
        try:
            reset(row)
        except (Exception, SystemExit) as error:
            self._fail(row, Failure.of(error, self._first_index + row, "reset"), failures, reset)

    def _reset_member(self, row: int, seed: int | None = None, options: Options = None) -> tuple[Any, Any]:
        fused = self._fused[row]
        former = fused.env
        seed = fused.begin_episode(fused.take_seed(seed))
        if fused.env is not former:
            self._set_again(row, fused.env)
        if self._starts is not None:
            self._starts.note(row, fused.env, seed)
        observation, info = fused.reset(seed=seed, options=options)
        if self._digests is not None:
            self._begun[row] = info_digest(info) if isinstance(info, dict) else UNKNOWN
        return observation, info

    # -- restarts -------------------------------------------------------------------------------------

    def _fail(self, row: int, failure: Failure, failures: list[Failure], go_on: Callable[[int], None]) -> None:
        """Makes a failed environment again and goes on with it; notes the failure if that is not wanted or fails."""
        while self._task.policy.restart:
            if not self._budgets[row].spend():
                failure.note = self._budgets[row].exhausted_text
                break
            try:
                self._make_again(row, f"{type(failure.error).__name__}: {failure.error}")
                go_on(row)
                return
            except (Exception, SystemExit) as error:
                failure = Failure.of(error, self._first_index + row, "restart")
        else:
            failure.note = START_OVER
        failures.append(failure)
        self._progress.enter(row + 1)

    def _make_again(self, row: int, cause: str) -> None:
        self._progress.enter(row)
        with suppress(Exception):
            self._fused[row].env.close()
        self._rows.progress[1] = Activity.MAKING
        try:
            env = self._task.env_fns[row]()
            self._set_again(row, env)
        finally:
            self._rows.progress[1] = Activity.ANYTHING
            self._progress.enter(row)
        self._fused[row] = self._fuse(row, env, is_lost=True)
        self._begun.pop(row, None)
        self._stepper.place(row, self._fused[row].step)
        self._rows.touched[row] = False
        self._due[row], self._causes[row] = _TELL_OF_RESTART, cause

    def _next_seed(self, row: int) -> int | None:
        # Counted in the block, which outlives the process.
        self._rows.restarts[row] += 1
        return restart_seed(self._seeds[row], int(self._rows.restarts[row]))

    def rebuild(self) -> None:
        """Brings the environments that the task has replays of back to where they were, or restarts them after all."""
        deadline = time.monotonic() + LONGEST
        for row, replay in self._task.replays.items():
            self._progress.enter(row)
            self._rows.progress[1] = Activity.REBUILDING
            try:
                self._rebuild_row(row, replay, deadline)
            except (Exception, SystemExit) as error:
                self._make_again(row, f"{self._task.cause}; it could not be rebuilt: {error}")
        self._rows.progress[1] = Activity.ANYTHING
        self._progress.enter(len(self._fused))

    def _rebuild_row(self, row: int, replay: Replay, deadline: float) -> None:
        assert self._starts is not None
        fused, arrays = self._fused[row], self._rows.observation_arrays
        for array, last in zip(arrays, replay.observation, strict=True):
            array[row] = last  # the lost process may have scribbled there
        former = fused.env
        fused.return_to(replay.episode)
        if fused.env is not former:
            self._set_again(row, fused.env)
        seed = self._starts.restore(row, replay.episode, fused.env)
        stage = Stage(self._observations, arrays)
        replay.play(fused, seed, self._actions, stage, partial(self._progress.enter, row), deadline)
        self._rows.digests[row] = replay.digest
        self._rows.rebuilt[row] += 1
        if replay.ended and self._autoreset_mode is AutoresetMode.NEXT_STEP:
            self._due[row] = _RESET

    def _tell_of_restart(self, row: int) -> None:
        """Publishes, instead of a step, that the episode was cut off.

        The last observation is left to the fleet, which has kept it: a lost process may have left anything in the row.
        """
        self._due[row] = _RESET if self._autoreset_mode is AutoresetMode.NEXT_STEP else _NOTHING
        info = self._restart_info(row)
        if self._autoreset_mode is AutoresetMode.SAME_STEP:
            observation, reset_info = self._reset_member(row)
            self._write_observation(row, observation)
            info = {"final_obs": None, "final_info": {}, **reset_info, **info}
        self._rows.terminated[row], self._rows.truncated[row], self._rows.restarted[row] = False, True, True
        self._publish_rest(row, 0.0, info)

    def _restart_info(self, row: int) -> Info:
        return {"restarted": True, "restart_cause": self._causes[row]}

    def _report(self, failures: list[Failure], row: int | None = None) -> Report | None:
        self._progress.enter(len(self._fused))  # none is at work
        infos = self._info_writer.end()
        if infos is None and not failures and not self._observations.loose_leaves:
            return None
        rows = slice(None) if row is None else slice(row, row + 1)
        loose = [list(self._observation_columns[leaf][rows]) for leaf in self._observations.loose_leaves]
        return Report(loose_observations=loose, infos=infos, failures=failures)

    def close(self) -> list[Failure]:
        """Closes all environments; returns what they raised."""
        return close_envs(self.envs, self._first_index)
