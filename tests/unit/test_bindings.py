"""The compiled modules take whatever comes: what does not fit is refused, nothing crashes. `make fuzz` looks closer."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envfleet import _core, _native

FUZZ = Path(__file__).parents[1] / "fuzz" / "bindings.py"


def test_nothing_crashes_in_a_few_rounds() -> None:
    command = [sys.executable, "-W", "ignore", FUZZ, "--seconds", "3", "--seed", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def columns(rows: int = 2, **others: Any) -> dict[str, Any]:
    """What a pool of CartPoles wants."""
    flags = dict.fromkeys(("terminated", "truncated", "finished", "turns", "out"), np.zeros(rows, np.uint8))
    return {
        "observations": [np.zeros((rows, 4), np.float32)],
        "final_observations": [np.zeros((rows, 4), np.float32)],
        "infos": [],
        "final_infos": [],
        "actions": np.zeros(rows, np.int64),
        "rewards": np.zeros(rows),
        **flags,
        "batch_observations": None,
        "final_observation": None,
        **others,
    }


def pool_of(arrays: dict[str, Any]) -> _native.Pool:
    rows = len(arrays["rewards"])
    return _native.make("CartPole", [{}], _native.PoolArrays(**arrays), 0, [10] * rows, 1, False, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"terminated": np.zeros(1, np.uint8)},
        {"turns": np.zeros(0, np.uint8)},
        {"finished": np.zeros((2, 2), np.uint8)},
        {"out": np.zeros(2, np.int64)},
        {"rewards": np.zeros(2, np.float32)},
        {"rewards": np.zeros((2, 2))},
        {"actions": np.zeros(1, np.int64)},
        {"actions": np.zeros(2, np.int32)},
        {"observations": [np.zeros((1, 4), np.float32)]},
        {"observations": [np.zeros((2, 3), np.float32)]},
        {"observations": []},
        {"final_observations": [np.zeros((2, 4))]},
        {"infos": [np.zeros(2)]},
    ],
    ids=lambda wrong: "{} {}".format(*next((name, np.shape(array)) for name, array in wrong.items())),
)
def test_columns_that_a_pool_would_write_beyond_are_refused(wrong: dict[str, Any]) -> None:
    assert pool_of(columns()).plans(0) == 0
    with pytest.raises(ValueError, match=r"expected|do not fit|does not fit"):
        pool_of(columns(**wrong))


def test_a_pool_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one environment"):
        pool_of(columns(rows=0))


def test_the_stride_of_an_array_with_one_row_means_nothing() -> None:
    column = np.lib.stride_tricks.as_strided(np.zeros((1, 2), np.float32), strides=(2**40, 4))
    writer = _core.RowWriter(column, lambda *_: None, False, [], np.zeros(1, np.uint8))
    writer(0, np.ones(2, np.float32))
    assert column.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("kind", "format_"), [(str, "d"), (int, "d"), (float, "q"), (np.longdouble, "n"), (np.str_, "n")]
)
def test_formats_that_read_or_write_beyond_a_value_are_refused(kind: type, format_: str) -> None:
    packer = _core.InfoPacker(np.zeros((1, 8), np.uint8), np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="does not fit its type"):
        packer.learn(1, ("a",), (kind,), format_, 0)


def test_a_stepper_may_be_entered_again() -> None:
    """An environment may have the very fleet stepped that it is part of."""
    packer, progress = (
        _core.InfoPacker(np.zeros((3, 8), np.uint8), np.zeros(3, np.uint8)),
        _core.Progress(np.zeros(1, np.uint64)),
    )
    writer = _core.RowWriter(np.zeros((3, 1), np.float32), lambda *_: None, False, [], np.zeros(1, np.uint8))
    publisher = _core.RowPublisher([(None, writer)], np.zeros(3), packer, progress, False)
    flags = [np.zeros(3, np.bool_) for _ in range(3)]
    stepper = _core.RowStepper(publisher, packer, progress, None, *flags, np.zeros(3, np.uint8), None)
    stepped: list[tuple[int, int]] = []

    def step(row: int, action: int) -> Any:
        stepped.append((row, action))
        if (row, action) == (0, 0):
            stepper.aim(1, [7, 7])
            assert stepper.run(1) is None
        return np.zeros(1, np.float32), 1.0, False, False, {}

    for row in range(3):
        slot = _core.StepSlot()
        slot.fuse(SimpleNamespace(step=partial(step, row)), [], None, None)
        stepper.place(row, slot)
    stepper.begin([0, 0, 0])
    assert stepper.run(0) is None
    assert stepped == [(0, 0), (1, 7), (2, 7), (1, 0), (2, 0)]
    assert stepper.row == 3
