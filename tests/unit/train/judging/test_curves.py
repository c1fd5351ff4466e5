from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import make_config, make_metrics, make_run

from envfleet.train.judging.curves import Group, band, group_runs, load_run, moving_average, smoothed


def labels(*folders: Path) -> list[str]:
    return [group.label for group in group_runs([load_run(folder) for folder in folders])]


def group_of(tmp_path: Path, *runs: dict[str, Any]) -> Group:
    for seed, columns in enumerate(runs):
        make_metrics(tmp_path / str(seed), **columns)
        make_config(tmp_path / str(seed), "a2c", env_id="CartPole-v1", seed=seed)
    (group,) = group_runs([load_run(tmp_path / str(seed)) for seed in range(len(runs))])
    return group


class TestMovingAverage:
    def test_is_the_mean_of_the_rows_around(self) -> None:
        values = np.array([1.0, 2.0, 6.0, 4.0, 5.0])
        np.testing.assert_allclose(moving_average(values, 3), [1.5, 3.0, 4.0, 5.0, 4.5])

    def test_one_row_changes_nothing(self) -> None:
        values = np.array([1.0, np.nan, 6.0])
        np.testing.assert_array_equal(moving_average(values, 1), values)

    def test_leaves_missing_values_out_and_missing(self) -> None:
        values = np.array([1.0, np.nan, 3.0, 5.0])
        np.testing.assert_allclose(moving_average(values, 3), [1.0, np.nan, 4.0, 4.0])

    @pytest.mark.parametrize("rows", [5, 99])
    def test_a_window_longer_than_the_run_gives_its_mean_in_the_middle(self, rows: int) -> None:
        assert moving_average(np.array([1.0, 2.0, 6.0]), rows)[1] == pytest.approx(3.0)

    def test_of_nothing_but_missing_values_is_missing(self) -> None:
        np.testing.assert_array_equal(moving_average(np.full(4, np.nan), 3), np.full(4, np.nan))


class TestSmoothed:
    def test_the_window_is_in_steps_not_rows(self, tmp_path: Path) -> None:
        coarse = make_metrics(tmp_path / "coarse", step=range(100, 600, 100), entropy=[1, 2, 6, 4, 5])
        fine = make_metrics(tmp_path / "fine", step=range(10, 60, 10), entropy=[1, 2, 6, 4, 5])
        np.testing.assert_allclose(smoothed(load_run(coarse), "entropy", 30), [1, 2, 6, 4, 5])
        np.testing.assert_allclose(smoothed(load_run(fine), "entropy", 30), [1.5, 3, 4, 5, 4.5])


class TestBand:
    def test_is_mean_lowest_and_highest_of_the_seeds(self, tmp_path: Path) -> None:
        steps = [10, 20, 30]
        group = group_of(tmp_path, *({"step": steps, "entropy": [a, 2, 3]} for a in (0, 1, 5)))
        curve = band(group, "entropy", 0)
        assert curve is not None
        np.testing.assert_allclose(curve.x, steps)
        np.testing.assert_allclose(curve.mean, [2, 2, 3])
        np.testing.assert_allclose(curve.low, [0, 2, 3])
        np.testing.assert_allclose(curve.high, [5, 2, 3])

    def test_a_run_counts_as_far_as_it_goes(self, tmp_path: Path) -> None:
        long = {"step": [10, 20, 30], "entropy": [1, 1, 1]}
        curve = band(group_of(tmp_path, long, {"step": [10, 20], "entropy": [3, 3]}), "entropy", 0)
        assert curve is not None
        np.testing.assert_allclose(curve.mean, [2, 2, 1])

    def test_runs_logged_at_different_steps_meet_by_interpolation(self, tmp_path: Path) -> None:
        one, other = {"step": [10, 30], "entropy": [0, 2]}, {"step": [10, 20, 30], "entropy": [2, None, 4]}
        curve = band(group_of(tmp_path, one, other), "entropy", 0)
        assert curve is not None
        np.testing.assert_allclose(np.interp([10, 20, 30], curve.x, curve.mean), [1, 2, 3])

    def test_is_none_where_no_run_has_a_value(self, tmp_path: Path) -> None:
        group = group_of(tmp_path, {"step": [10], "entropy": [None]}, {"step": [10], "entropy": [math.inf]})
        assert band(group, "entropy", 0) is None
        assert band(group, "temperature", 0) is None

    def test_long_runs_are_thinned_but_keep_their_ends(self, tmp_path: Path) -> None:
        count = 2500
        curve = band(group_of(tmp_path, {"step": range(count), "entropy": range(count)}), "entropy", 0)
        assert curve is not None
        assert len(curve.x) <= 1000
        assert (curve.x[0], curve.x[-1]) == (0, count - 1)
        np.testing.assert_array_equal(curve.mean, curve.x)


class TestGroups:
    def test_runs_that_differ_in_the_seed_alone_are_one(self, tmp_path: Path) -> None:
        folders = [make_run(tmp_path / str(seed), seed=seed, gamma=0.99) for seed in range(3)]
        (group,) = group_runs([load_run(folder) for folder in folders])
        assert (group.label, group.count) == ("A2C on LunarLander-v3", "3 seeds")

    def test_the_same_seed_twice_is_two_runs(self, tmp_path: Path) -> None:
        folders = [make_run(tmp_path / name, seed=4) for name in "ab"]
        (group,) = group_runs([load_run(folder) for folder in folders])
        assert group.count == "2 runs"

    def test_labels_say_what_differs(self, tmp_path: Path) -> None:
        base = make_run(tmp_path / "base", gamma=0.99, env_kwargs={})
        ppo = make_run(tmp_path / "ppo", algo="ppo", gamma=0.99, clip=0.2)
        hopper = make_run(tmp_path / "hopper", env_id="Hopper-v5", gamma=0.99)
        gamma = make_run(tmp_path / "gamma", gamma=0.9, env_kwargs={})
        moon = make_run(tmp_path / "moon", gamma=0.99, env_kwargs={"gravity": -1.6})
        assert labels(base, ppo) == ["A2C", "PPO"]
        assert labels(base, hopper) == ["LunarLander-v3", "Hopper-v5"]
        assert labels(ppo, hopper) == ["PPO on LunarLander-v3", "A2C on Hopper-v5"]
        assert labels(base, gamma) == ["gamma=0.99", "gamma=0.9"]
        assert labels(base, moon) == ["env_kwargs.gravity=unset", "env_kwargs.gravity=-1.6"]
        assert labels(base, gamma, ppo) == ["A2C, gamma=0.99", "A2C, gamma=0.9", "PPO"]

    def test_labels_stay_short_and_different(self, tmp_path: Path) -> None:
        first = make_run(tmp_path / "first", a=1, b=1, c=1, d=1, e=1)
        second = make_run(tmp_path / "second", a=1, b=1, c=1, d=2, e=1)
        third = make_run(tmp_path / "third", a=2, b=2, c=2, d=2, e=2)
        assert labels(first, second, third) == [
            "a=1, b=1, c=1, and 2 more (first)",
            "a=1, b=1, c=1, and 2 more (second)",
            "a=2, b=2, c=2, and 2 more",
        ]

    def test_a_run_without_config_stands_alone(self, tmp_path: Path) -> None:
        folders = [make_metrics(tmp_path / name, step=[1], entropy=[1]) for name in ("mine", "_yours")]
        assert labels(*folders) == ["run mine", "run _yours"]

    @pytest.mark.parametrize("content", ["{", "[]", '{"algo": "a2c"}', '{"algo": "a2c", "config": 3}'])
    def test_explains_a_damaged_config(self, tmp_path: Path, content: str) -> None:
        (make_metrics(tmp_path, step=[1], entropy=[1]) / "config.json").write_text(content)
        with pytest.raises(ValueError, match=r"no config\.json of envfleet"):
            load_run(tmp_path)

    def test_explains_metrics_without_steps(self, tmp_path: Path) -> None:
        (tmp_path / "metrics.csv").write_text("step,entropy\n,1\n")
        with pytest.raises(ValueError, match='no number in its column "step"'):
            load_run(tmp_path)
