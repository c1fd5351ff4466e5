from __future__ import annotations

import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from envfleet.train.running.loggers.tensorboard import TensorBoardWriter
from envfleet.train.running.loggers.wandb import WandbWriter
from envfleet.train.running.metrics import MetricsWriter, read_metrics


def row(step: int, value: float | None = 0.5) -> dict[str, float | int | None]:
    return {"step": step, "episode_return": value, "episodes": step // 10}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.csv"


def write(path: Path, *steps: int, resume_at_step: int | None = None) -> None:
    with MetricsWriter(path, resume_at_step) as writer:
        for step in steps:
            writer.write(row(step))


class TestMetricsWriter:
    def test_writes_numbers_in_full_and_leaves_cells_empty(self, path: Path) -> None:
        with MetricsWriter(path) as writer:
            writer.write({"step": 10, "a": 1 / 3, "b": None, "c": np.float32(0.5), "d": np.int64(2**60)})
            writer.write({"d": 1, "c": math.nan, "b": math.inf, "a": 1e-300, "step": 20})
        assert path.read_text() == f"step,a,b,c,d\n10,{1 / 3!r},,0.5,{2**60}\n20,1e-300,inf,,1\n"

    def test_a_column_that_comes_later_is_empty_before_and_one_that_is_missing_is_empty_then(self, path: Path) -> None:
        with MetricsWriter(path) as writer:
            writer.write(row(10))
            writer.write({**row(20), "is_success": 1.0})
            writer.write({"step": 30, "episodes": 3})
        assert path.read_text() == "step,episode_return,episodes,is_success\n10,0.5,1,\n20,0.5,2,1.0\n30,,3,\n"
        assert read_metrics(path.parent)["is_success"][1] == 1

    def test_rows_can_be_read_while_the_run_goes_on(self, path: Path) -> None:
        writer = MetricsWriter(path)
        for step in (10, 20):
            writer.write(row(step))
            assert read_metrics(path.parent)["step"][-1] == step
        writer.close()
        writer.close()

    def test_a_new_run_overwrites_nothing(self, path: Path) -> None:
        write(path, 10)
        before = path.read_text()
        with pytest.raises(FileExistsError, match="resume that run, or train in another folder"):
            MetricsWriter(path)
        assert path.read_text() == before

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"episode_return": 0.5, "episodes": 2}, 'needs a "step"'),
            ({**row(20), "an,other": 1}, "text without commas"),
            ({**row(20), "episodes": "many"}, "episodes='many'"),
            ({**row(20), "episodes": [1, 2]}, r"episodes=\[1, 2\]"),
            (row(10), "more than the 10 of the row before"),
            ({**row(20), "step": None}, "more than the 10"),
            ({**row(20), "step": math.nan}, "more than the 10"),
        ],
    )
    def test_a_refused_row_changes_nothing(self, path: Path, bad: dict[str, Any], message: str) -> None:
        with MetricsWriter(path) as writer:
            writer.write(row(10))
            with pytest.raises((TypeError, ValueError), match=message):
                writer.write(bad)
            writer.write(row(20))
        assert list(read_metrics(path.parent)["step"]) == [10, 20]

    @pytest.mark.parametrize("first", [{"loss": 1.0}, {"step": 1, "a,b": 1.0}, {"step": 1, "": 1.0}])
    def test_refuses_columns_that_no_reader_could_take(self, path: Path, first: dict[str, float]) -> None:
        with MetricsWriter(path) as writer, pytest.raises(ValueError, match=r"step|commas"):
            writer.write(first)
        assert path.read_text() == ""


class TestResume:
    def test_gives_the_file_of_an_uninterrupted_run(self, tmp_path: Path) -> None:
        whole, broken = tmp_path / "whole.csv", tmp_path / "broken.csv"
        write(whole, 10, 20, 30, 40)
        write(broken, 10, 20, 30)
        write(broken, 30, 40, resume_at_step=20)
        assert broken.read_text() == whole.read_text()
        assert sorted(tmp_path.iterdir()) == [broken, whole]

    def test_a_checkpoint_between_two_rows_keeps_the_earlier(self, path: Path) -> None:
        write(path, 10, 20, 30)
        write(path, 35, resume_at_step=25)
        assert list(read_metrics(path.parent)["step"]) == [10, 20, 35]

    def test_drops_a_line_that_was_cut_in_the_middle(self, path: Path) -> None:
        write(path, 10, 20)
        finished = path.read_text()
        path.write_text(finished + "30,0.")
        write(path, resume_at_step=30)
        assert path.read_text() == finished

    @pytest.mark.parametrize("left", [None, "", "step,epis"])
    def test_begins_anew_where_hardly_anything_was_written(self, path: Path, left: str | None) -> None:
        if left is not None:
            path.write_text(left)
        write(path, 20, resume_at_step=10)
        assert path.read_text() == "step,episode_return,episodes\n20,0.5,2\n"

    def test_keeps_to_the_columns_and_steps_of_the_file(self, path: Path) -> None:
        write(path, 10)
        with MetricsWriter(path, resume_at_step=15) as writer:
            with pytest.raises(ValueError, match="more than the 15"):
                writer.write(row(15))
            writer.write({"loss": 1.0, **row(20)})
        assert path.read_text() == "step,episode_return,episodes,loss\n10,0.5,1,\n20,0.5,2,1.0\n"

    def test_leaves_a_foreign_file_alone(self, path: Path) -> None:
        path.write_text("name,age\nAda,36\n")
        with pytest.raises(ValueError, match=r"no metrics.csv of envfleet"):
            MetricsWriter(path, resume_at_step=10)
        assert path.read_text() == "name,age\nAda,36\n"


class TestReadMetrics:
    def test_gives_back_what_was_written(self, path: Path) -> None:
        values = [0.1, None, 1e300, -1 / 3]
        with MetricsWriter(path) as writer:
            for index, value in enumerate(values):
                writer.write(row(10 * index, value))
        metrics = read_metrics(path.parent)
        assert list(metrics) == ["step", "episode_return", "episodes"]
        assert {values.dtype for values in metrics.values()} == {np.dtype(np.float64)}
        np.testing.assert_array_equal(metrics["episode_return"], [0.1, math.nan, 1e300, -1 / 3])
        np.testing.assert_array_equal(metrics["step"], [0, 10, 20, 30])

    def test_says_which_folder_holds_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"nowhere.metrics\.csv does not exist; a folder that training"):
            read_metrics(tmp_path / "nowhere")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "has no rows"),
            (b"step,loss\n", "has no rows"),
            (b"step,loss\n10,0.", "has no rows"),
            (b"name,age\nAda,36\n", "first line must name the columns"),
            (b"step,loss,loss\n1,2,3\n", "each once"),
            (b"step,loss\n1,2\n2,3,4\n", "line 3: expected 2 cells, one per column, got 3"),
            (b"step,loss\n1,two\n", "line 2: expected a number or an empty cell, got 'two'"),
            (b"\x89PNG\r\n\x1a\n\xff\xfe", "not text"),
        ],
    )
    def test_explains_an_empty_or_foreign_file(self, path: Path, content: bytes, message: str) -> None:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_metrics(path.parent)


def tensorboard_scalars(run_dir: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir)).Reload()
    return {
        tag: [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


class TestTensorBoardWriter:
    def test_shows_the_row_by_telling_names(self, tmp_path: Path) -> None:
        with TensorBoardWriter(tmp_path) as writer:
            writer.write({"step": 10, "episode_return": None, "actor_loss": 0.25, "mine": 1})
            writer.write({"step": 20, "episode_return": -3.5, "actor_loss": math.nan, "mine": 2})
        writer.close()
        assert tensorboard_scalars(tmp_path) == {
            "episode/return": [(20, -3.5)],
            "loss/actor": [(10, 0.25)],
            "other/mine": [(10, 1), (20, 2)],
        }

    def test_a_resumed_run_is_one_curve(self, tmp_path: Path) -> None:
        for steps, resume_at_step in (((10, 20, 30, 40), None), ((25, 35), 20)):
            with TensorBoardWriter(tmp_path, resume_at_step) as writer:
                for step in steps:
                    writer.write({"step": step, "entropy": float(step)})
        assert tensorboard_scalars(tmp_path) == {"policy/entropy": [(step, step) for step in (10, 20, 25, 35)]}


class FakeWandb(ModuleType):
    """What WandbWriter uses of wandb: each run remembers what it was told."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: list[SimpleNamespace] = []
        self.Settings = SimpleNamespace

    def init(self, **options: Any) -> SimpleNamespace:
        rows: list[dict[str, float]] = []
        run = SimpleNamespace(options=options, id=options["id"] or "abc123", rows=rows, log=rows.append, finished=0)
        run.define_metric = lambda name, step_metric: setattr(run, "axis", (name, step_metric))
        run.finish = lambda: setattr(run, "finished", run.finished + 1)
        self.runs.append(run)
        return run


class TestWandbWriter:
    @pytest.fixture
    def wandb(self, monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
        fake = FakeWandb()
        monkeypatch.setitem(sys.modules, "wandb", fake)
        return fake

    def test_sends_rows_over_environment_steps(self, wandb: FakeWandb, tmp_path: Path) -> None:
        with WandbWriter(tmp_path, {"gamma": 0.99}, "a2c-0") as writer:
            writer.write({"step": 10, "episode_return": None, "critic_loss": 0.25})
        (run,) = wandb.runs
        assert run.rows == [{"step": 10, "loss/critic": 0.25}]
        assert run.axis == ("*", "step")
        assert (run.options["name"], run.options["config"], run.finished) == ("a2c-0", {"gamma": 0.99}, 1)

    def test_a_resumed_run_goes_on_as_the_same(self, wandb: FakeWandb, tmp_path: Path) -> None:
        for _ in range(2):
            WandbWriter(tmp_path, {}, "a2c-0").close()
        assert [run.options["id"] for run in wandb.runs] == [None, "abc123"]

    def test_says_how_to_install_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setitem(sys.modules, "wandb", None)
        with pytest.raises(ModuleNotFoundError, match=r'pip install "envfleet\[wandb\]"'):
            WandbWriter(tmp_path, {}, "a2c-0")
        assert list(tmp_path.iterdir()) == []
