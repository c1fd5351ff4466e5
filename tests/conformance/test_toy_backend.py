"""A backend from outside: an engine, a constructor, a line in the table and this test, which is the whole contract."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import numpy as np
import pytest
from selection import left_to_test_all

import envfleet
from envfleet import backends
from envfleet.redraw import redrawn
from envfleet.testing import (
    AutoresetContract,
    FailuresContract,
    FirstReadyContract,
    TrajectoriesContract,
    VectorEnvContract,
)
from envfleet.vector.block import FleetLayout, aligned_zeros
from envfleet.vector.engine import NoQuickCalls, Order, Report, ResetOrder, Rows, StepOrder
from envfleet.vector.failures import FailurePolicy, as_error, checked_failure_policy, warn_of_close
from envfleet.vector.fleet_block import FleetBlock
from envfleet.vector.fused_env import AnyEnv, EnvFn, build_envs
from envfleet.vector.recovery import ShardTask
from envfleet.vector.runtime import exclusive_for
from envfleet.vector.shard import Shard
from envfleet.vector.spaces import EnvFace, EnvFunctions
from envfleet.vector.vector_env import FleetOptions, FleetVectorEnv


@final
class ReversedEngine:
    """A shard per environment in the caller's thread, the last one first."""

    is_busy = False

    def __init__(self, env_fns: Sequence[EnvFn], envs: Sequence[AnyEnv], layout: FleetLayout, policy: FailurePolicy):
        self.exclusive, self.quick = exclusive_for("ReversedVectorEnv"), NoQuickCalls()
        memory, self._bounds = aligned_zeros(layout.size), [(i, i + 1) for i in range(len(envs))]
        self.block = FleetBlock(layout, memory, self._bounds, keeps_last=policy.restart)
        self._shards = [
            Shard(
                ShardTask([env_fns[i]], i, policy),
                [env],
                layout.rows(memory, i, i + 1),
                layout.observations,
                layout.actions,
                layout.autoreset_mode,
            )
            for i, env in enumerate(envs)
        ]
        self._order: Order = StepOrder()
        self._queue: deque[tuple[int, Callable[[], Report | None]]] = deque()

    def begin(self, order: Order) -> None:
        self._order = order

    def finish(self, timeout: float | None) -> Sequence[Report | None]:
        pairs = reversed(list(zip(self._shards, self._bounds, strict=True)))
        reports = [shard.execute(self._order.part(*bounds)) for shard, bounds in pairs][::-1]
        self.block.absorb(self._order, reports)
        return reports

    def prepare_steps(self, rows: Rows, loose_actions: Sequence[Sequence[Any]]) -> Callable[[], None]:
        loose = [[values[i] for values in loose_actions] for i in range(len(rows))]
        work = [
            (row, partial(self._shards[row].step_row, 0, own)) for row, own in zip(rows.tolist(), loose, strict=True)
        ]
        return lambda: self._queue.extend(work)

    def prepare_resets(self, rows: Rows, order: ResetOrder) -> Callable[[], None]:
        given = [(row, order.seeds[row], order.options[row]) for row in rows.tolist()]
        work = [(row, partial(self._shards[row].reset_row, 0, *pair)) for row, *pair in given]
        return lambda: self._queue.extend(work)

    def receive(self, count: int, timeout: float | None) -> tuple[Rows, Sequence[Report | None]]:
        work = [self._queue.popleft() for _ in range(count)]
        rows, reports = np.array([row for row, _ in work], np.intp), [carry_out() for _, carry_out in work]
        self.block.absorb_rows(rows, reports)
        return rows, reports

    def discard(self) -> None:
        self._queue.clear()

    recover = discard

    def close(self, timeout: float, terminate: bool) -> None:
        warn_of_close([failure for shard in self._shards for failure in shard.close()])

    def interrupt(self) -> None:
        pass

    def worker_of(self, env_index: int) -> None:
        return None


@final
class ReversedVectorEnv(FleetVectorEnv):
    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        copy: bool = True,
        observation_mode: Any = "same",
        autoreset_mode: Any = "NextStep",
        *,
        first_ready: int | None = None,
        on_failure: Any = "raise",
        max_restarts: int | None = 10,
        restart_window: float = 60.0,
        check_nan: bool = False,
    ) -> None:
        given = EnvFunctions.checked(env_fns, observation_mode, autoreset_mode, first_ready)
        policy = checked_failure_policy(on_failure, max_restarts, restart_window, check_nan=check_nan)
        envs, failure = build_envs(given.env_fns, 0)
        if failure is not None:
            raise as_error(failure, worker=None)
        spaces, randomize = given.spaces([EnvFace.of(env) for env in envs]), redrawn(given.env_fns)
        layout = FleetLayout(spaces, num_parameters=len(randomize), refuse_nan=check_nan)
        engine = ReversedEngine(given.env_fns, envs, layout, policy)
        super().__init__(spaces, engine, FleetOptions("reversed: the last one first.", copy, first_ready, randomize))


class Reversed:
    def make(self, env_fns: Sequence[EnvFn], **kwargs: Any) -> FleetVectorEnv:
        return ReversedVectorEnv(env_fns, **kwargs)


class TestReversed(Reversed, TrajectoriesContract, AutoresetContract, FailuresContract):
    """The topics that concern an engine most."""


@left_to_test_all()
class TestReversedInEverything(Reversed, VectorEnvContract, FirstReadyContract):
    """The shard and the block decide the rest, and they are tested with the other engines."""


@pytest.fixture
def in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_table", dict(backends._table))
    backends.register(backends.Backend("reversed", backends.from_functions(ReversedVectorEnv), "here, in reverse"))


@pytest.mark.usefixtures("in_the_table")
def test_one_line_makes_it_known_to_make_vec() -> None:
    with envfleet.make_vec("CartPole-v1", 3, "reversed") as envs, envfleet.make_vec("CartPole-v1", 3, "sync") as others:
        assert isinstance(envs, ReversedVectorEnv)
        np.testing.assert_array_equal(envs.reset(seed=1)[0], others.reset(seed=1)[0])
        for _ in range(30):
            actions = envs.action_space.sample()
            np.testing.assert_array_equal(envs.step(actions)[0], others.step(actions)[0])
        with envfleet.make_vec(envs.spec) as again:
            assert isinstance(again, ReversedVectorEnv)
