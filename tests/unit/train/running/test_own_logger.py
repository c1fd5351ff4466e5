"""A logger of one's own: everything about it is in this one file, and nothing else is touched."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
from small_runs import stop_at

from envfleet.cli import main
from envfleet.train import A2CConfig, LoggedRun, LogWriter, TrainConfig, read_metrics, register_logger, resume, train
from envfleet.train.running.loggers.registry import LOGGERS


@final
class Diary(LogWriter):
    """The logger: it keeps the rows."""

    def __init__(self, run: LoggedRun) -> None:
        self.run, self.rows, self.closed = run, list[dict[str, Any]](), False
        DIARIES.append(self)

    def write(self, row: Any) -> None:
        self.rows.append(dict(row))

    def close(self) -> None:
        self.closed = True


DIARIES: list[Diary] = []


@pytest.fixture(autouse=True)
def _added() -> Iterator[None]:
    register_logger("diary", Diary)
    DIARIES.clear()
    yield
    del LOGGERS["diary"]


def small(**changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {"num_envs": 2, "backend": "sync", "hidden_sizes": (8,), "total_steps": 640, **changes}
    return A2CConfig("CartPole-v1", rollout_steps=16, **settings)


def test_it_is_given_what_metrics_csv_holds(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small(), run_dir=run, loggers=["diary"], callback=stop_at([64]), progress=False)
    resume(run, loggers=["diary"], progress=False)
    first, second = DIARIES
    assert (first.run.path, first.run.resumed_at, second.run.resumed_at) == (run, None, 64)
    assert first.run.config["rollout_steps"] == 16
    assert first.closed
    assert second.closed
    columns = {name: [row[name] for row in first.rows + second.rows] for name in first.rows[0]}
    numbers = {name: [math.nan if cell is None else cell for cell in column] for name, column in columns.items()}
    np.testing.assert_equal(numbers, {name: column.tolist() for name, column in read_metrics(run).items()})


def test_only_those_that_are_asked_for_are_opened(tmp_path: Path) -> None:
    for name, loggers, expected in (("default", None, 1), ("both", ("tensorboard", "diary"), 1), ("none", (), 0)):
        chosen: dict[str, Any] = {} if loggers is None else {"loggers": loggers}
        train(small(total_steps=32), run_dir=tmp_path / name, **chosen, progress=False)
        assert len([*(tmp_path / name).glob("events.out.tfevents*")]) == expected
        assert read_metrics(tmp_path / name)["step"].tolist() == [32]
    assert len(DIARIES) == 1


def test_the_command_line_opens_it(tmp_path: Path) -> None:
    argv = ["train", "CartPole-v1", "--num-envs", "2", "--backend", "sync", "--rollout-steps", "16"]
    rest = ["--total-steps", "32", "--eval-episodes", "0", "--no-showcase", "--run-dir", str(tmp_path / "run")]
    assert main([*argv, *rest, "--loggers", "diary", "tensorboard"]) == 0
    assert [row["step"] for row in DIARIES[0].rows] == [32]


def test_one_that_is_unknown_is_refused_before_there_is_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    wanted = re.escape("loggers must be of tensorboard, wandb, diary, got 'paper'; register_logger() adds your own.")
    with pytest.raises(ValueError, match=wanted):
        train(small(), run_dir=run, loggers=["paper"], progress=False)
    assert main(["train", "CartPole-v1", "--loggers", "paper", "--run-dir", str(run)]) == 2
    assert re.search(wanted, capsys.readouterr().err)
    assert not run.exists()
