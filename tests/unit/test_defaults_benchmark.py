"""The comparison of old and new defaults: what it compares, how it is kept, what it says."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from defaults import environments, report, run
from defaults.results import Outcome, ResultFile
from defaults.trials import CASES, SEEDS, Case

from envfleet.train.algorithms.presets import PRESETS
from envfleet.train.algorithms.registry import config_class

GRID = Case(environments.GRID_ID, "ppo", 2_560, "sync")


def outcomes(settings: Any, *returns: float) -> list[Outcome]:
    return [Outcome(settings, seed, value, None, 1_000, 2.0) for seed, value in enumerate(returns)]


class TestEnvironments:
    @pytest.mark.parametrize("env_id", [environments.MAZE_ID, environments.GRID_ID])
    def test_they_are_proper(self, env_id: str) -> None:
        environments.register()
        check_env(gymnasium.make(env_id).unwrapped, skip_render_check=True)

    def test_the_maze_has_a_way_from_every_cell(self) -> None:
        moves, reached = ((-1, 0), (0, 1), (1, 0), (0, -1)), {(5, 5)}
        for _ in range(36):
            around = {(row + down, column + right) for row, column in reached for down, right in moves}
            inside = {cell for cell in around if min(cell) >= 0 and max(cell) < 6}
            reached |= inside - environments.Maze.walls
        assert len(reached) == 36 - len(environments.Maze.walls)

    def test_bumping_into_a_wall_to_the_end_is_the_worst(self) -> None:
        environments.register()
        env = gymnasium.make(environments.MAZE_ID)
        env.reset(seed=0)
        steps = [env.step(0)[1:4] for _ in range(60)]
        assert {terminated for _, terminated, _ in steps} == {False}
        assert [truncated for _, _, truncated in steps].index(True) == 59
        assert sum(float(reward) for reward, _, _ in steps) == pytest.approx(-1.2)


class TestTrials:
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_old_and_new_differ_in_what_changed_alone(self, case: Case) -> None:
        old, new = case.config("old", 3), case.config("new", 3)
        defaults = config_class(case.algo)(case.env_id)
        changed = ("normalize_observations", "normalize_rewards", "reward_scale")
        assert replace(old, **{name: getattr(defaults, name) for name in changed}) == new
        assert (old.normalize_observations, old.normalize_rewards) == (False, False)
        assert old.reward_scale == 0.01
        same = {
            name: getattr(new, name) for name in ("seed", "total_steps", "backend", "device", "env_kwargs", "learner")
        }
        assert replace(defaults, **same) == new

    def test_the_environments_are_held_out(self) -> None:
        # The defaults come from settings tuned for these. Other presets came later, and have the defaults to thank.
        tuned = {
            *(("LunarLander-v3", "a2c"), ("LunarLander-v3", "ppo"), ("LunarLanderContinuous-v3", "sac")),
            *(("CartPole-v1", "a2c"), ("CartPole-v1", "ppo"), ("Pendulum-v1", "sac")),
        }
        assert tuned <= PRESETS.keys()
        assert not {(case.env_id, case.algo) for case in CASES} & tuned
        assert len({case.env_id for case in CASES if case.algo == "ppo"}) >= 8


class TestResults:
    def test_runs_made_at_different_times_end_up_together(self, tmp_path: Path) -> None:
        file = ResultFile(tmp_path / "new" / "defaults.json")
        assert file.read(GRID) == ()
        (first, second), (third,) = outcomes("old", 1.0, 2.0), outcomes("new", 3.0)
        for outcome in (second, third, first, replace(third, mean_return=4.0)):
            file.add(GRID, outcome, {"command": "x"})
        file.add(CASES[0], first, {"command": "x"})
        assert file.read(GRID) == (replace(third, mean_return=4.0), first, second)
        assert file.read(CASES[0]) == (first,)

    def test_runs_with_other_settings_than_todays_do_not_count(self, tmp_path: Path) -> None:
        file = ResultFile(tmp_path / "defaults.json")
        for outcome in (*outcomes("old", 1.0), *outcomes("new", 3.0)):
            file.add(GRID, outcome, {})
        file.path.write_text(file.path.read_text().replace('"reward_scale": 1.0', '"reward_scale": 2.0'))
        assert [outcome.settings for outcome in file.read(GRID)] == ["old"]

    def test_nothing_is_run_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        made: list[Any] = []

        def one_run(case: Case, settings: Any, seed: int) -> Outcome:
            made.append((case.name, settings, seed))
            return replace(outcomes(settings, float(seed))[0], seed=seed)

        monkeypatch.setattr(run, "one_run", one_run)
        common = ["run.py", "--results", str(tmp_path), "--envs", "Taxi-v4", "--algos", "ppo", "--seeds"]
        for seeds in ("0", "0 1"):
            monkeypatch.setattr(sys, "argv", [*common, *seeds.split()])
            assert run.main() == 0
        assert made == [("Taxi-v4 ppo", settings, seed) for seed in (0, 1) for settings in ("old", "new")]
        assert "| Taxi-v4 " in capsys.readouterr().out
        assert "| Taxi-v4 " in (tmp_path / "README.md").read_text()

    def test_a_run_is_trained_and_played(self) -> None:
        environments.register()
        outcome = run.one_run(GRID, "new", 1)
        assert (outcome.settings, outcome.seed, outcome.steps) == ("new", 1, 2_560)
        assert -2 <= outcome.mean_return <= 1


class TestVerdicts:
    @pytest.mark.parametrize(
        ("old", "new", "verdict"),
        [
            ((0.0, 0.1, 0.0, 0.1, 0.0), (0.7, 0.8, 0.7, 0.8, 0.7), "better"),
            ((0.7, 0.8, 0.7, 0.8, 0.7), (0.0, 0.1, 0.0, 0.1, 0.0), "worse"),
            ((0.0, 1.0, 0.0, 1.0, 0.0), (0.4, 0.6, 0.5, 0.5, 0.6), "equal"),
            ((-200.0, -200.0), (-200.0, -200.0), "equal"),
            ((-200.0, -200.0), (-100.0, -100.0), "better"),
        ],
    )
    def test_the_interval_decides(self, old: Any, new: Any, verdict: str) -> None:
        assert report.Comparison(old, new).verdict == verdict

    def test_the_interval_is_welchs(self) -> None:
        # Equal variances of 1 in five seeds each: 8 degrees of freedom, standard error sqrt(2 / 5).
        values = (0.0, np.sqrt(2), -np.sqrt(2), 0.0, 0.0)
        assert report.Comparison(values, values).half_interval == pytest.approx(2.306 * np.sqrt(2 / 5))

    def test_a_single_seed_says_nothing(self) -> None:
        assert report.comparison_of([*outcomes("old", 1.0, 2.0), *outcomes("new", 3.0)]) is None


def test_the_committed_results_are_whole_and_of_todays_defaults() -> None:
    file = ResultFile(run.RESULTS / "defaults.json")
    found = {case: file.read(case) for case in CASES}
    wanted = [(settings, seed) for settings in ("new", "old") for seed in SEEDS]
    for case, runs in found.items():
        assert [(outcome.settings, outcome.seed) for outcome in runs] == wanted, f"run {case.name} again"
    assert (run.RESULTS / "README.md").read_text() == report.page_text(found)


def test_no_environment_got_worse() -> None:
    file = ResultFile(run.RESULTS / "defaults.json")
    comparisons = {case.name: report.comparison_of(file.read(case)) for case in CASES}
    assert {name: found.verdict for name, found in comparisons.items() if found and found.verdict == "worse"} == {}
