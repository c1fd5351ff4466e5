"""Compiled calls that do a whole step: each is the same as the calls that it stands for."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envfleet import _core

ROWS = 3


class Fleet:
    """A stepper of three environments that show their actions, and the batch of their caller.

    Action 9 ends an episode, 8 raises, and 7 comes with an info.
    """

    def __init__(self) -> None:
        self.actions = np.zeros(ROWS, np.int64)
        self.observations = np.zeros((ROWS, 1), np.float32)
        self.rewards = np.zeros(ROWS)
        self.flags = [np.zeros(ROWS, np.bool_) for _ in range(3)]
        self.due = np.zeros(ROWS, np.uint8)
        self.cell = np.zeros(1, np.uint64)
        kinds = np.zeros(ROWS, np.uint8)
        packer = _core.InfoPacker(np.zeros((ROWS, 8), np.uint8), kinds)
        packer.learn(1, ("age",), (float,), "d", 0)
        progress = _core.Progress(self.cell)
        writer = _core.RowWriter(self.observations, lambda *_: None, False, [], np.zeros(1, np.uint8))
        publisher = _core.RowPublisher([(None, writer)], self.rewards, packer, progress, False)
        self.stepper = _core.RowStepper(publisher, packer, progress, self.actions, *self.flags, self.due, None)
        for row in range(ROWS):
            slot = _core.StepSlot()
            slot.fuse(SimpleNamespace(step=partial(self._step, row)), [], None, None)
            self.stepper.place(row, slot)
        self.batch = _core.Batch(self.actions, self.observations, self.rewards, *self.flags[:2], kinds)

    def _step(self, row: int, action: int) -> Any:
        if action == 8:
            raise RuntimeError(f"told to, in row {row}")
        info = {"age": 1.5} if action == 7 else {}
        return np.array([action], np.float32), float(action), bool(action == 9), False, info

    @property
    def row_at_work(self) -> int:
        return int(self.cell[0]) & 0xFFFFFFFF


def test_all_rows_in_one_call() -> None:
    fleet = Fleet()
    fleet.flags[2][1] = True
    assert fleet.stepper.run_all([4, 5, 6]) is None
    assert fleet.rewards.tolist() == [4, 5, 6]
    assert fleet.observations.tolist() == [[4], [5], [6]]
    assert not fleet.flags[2].any()
    assert fleet.row_at_work == ROWS  # none is
    fleet.actions[:] = 1, 2, 3
    assert fleet.stepper.run_all(None) is None
    assert fleet.rewards.tolist() == [1, 2, 3]


def test_all_rows_in_one_call_up_to_one_that_is_not_plain() -> None:
    fleet = Fleet()
    stopped = fleet.stepper.run_all([4, 9, 6])
    assert stopped is not None
    row, result = stopped
    assert row == 1
    assert result[2] is True
    assert fleet.rewards.tolist() == [4, 0, 0]
    assert fleet.row_at_work == 1
    assert fleet.stepper.run(2) is None
    assert fleet.rewards.tolist() == [4, 0, 6]
    fleet.due[0] = 1
    assert fleet.stepper.run_all([4, 5, 6]) == (0, None)


def test_results_where_nobody_has_infos() -> None:
    fleet = Fleet()
    fleet.stepper.run_all([4, 5, 6])
    assert not fleet.batch.has_infos()
    found = fleet.batch.results(None, True, {})
    assert [part.tolist() for part in found[:4]] == [[[4], [5], [6]], [4, 5, 6], [False] * 3, [False] * 3]
    assert found[4] == {}
    assert found[0] is not fleet.observations
    assert fleet.batch.results("given", False, {})[0] == "given"
    fleet.stepper.run_all([4, 7, 6])
    assert fleet.batch.has_infos()


@pytest.mark.parametrize("copy", [True, False])
def test_a_whole_step(copy: bool) -> None:
    fleet = Fleet()
    assert fleet.batch.put(np.array([4, 5, 6]))
    assert fleet.stepper.run_all(None) is None
    observations, rewards, terminated, truncated, infos = fleet.batch.results(None, copy, {})
    assert (observations is fleet.observations) is not copy
    assert observations.tolist() == [[4], [5], [6]]
    assert rewards.tolist() == [4, 5, 6]
    assert not terminated.any()
    assert not truncated.any()
    assert infos == {}
    assert fleet.row_at_work == ROWS


def test_actions_that_do_not_fit_are_not_stored() -> None:
    fleet = Fleet()
    for actions in ([4, 5, 6], np.array([4, 5]), np.array([4.0, 5.0, 6.0]), None):
        assert not fleet.batch.put(actions)
    assert fleet.actions.tolist() == [0, 0, 0]


def test_a_whole_step_that_somebody_else_goes_on_with() -> None:
    fleet = Fleet()
    assert fleet.batch.put(np.array([4, 9, 6]))
    stopped = fleet.stepper.run_all(None)
    assert stopped is not None
    assert stopped[0] == 1
    assert fleet.stepper.run(2) is None
    assert fleet.batch.put(np.array([4, 7, 6]))
    assert fleet.stepper.run_all(None) is None
    assert fleet.rewards.tolist() == [4, 7, 6]
    assert fleet.batch.put(np.array([4, 5, 8]))
    with pytest.raises(RuntimeError, match="told to, in row 2"):
        fleet.stepper.run_all(None)
    assert fleet.stepper.row == 2
