from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.image
import pytest
from synthetic_runs import make_metrics, make_run

from envfleet.train.judging.plots import ScenarioRow, plot_runs, plot_scenarios

PANELS = {
    "episode return",
    "episode length (steps)",
    "critic loss",
    "actor loss",
    "policy entropy (nats)",
    "speed (steps/s)",
}


def texts(svg: Path) -> list[str]:
    """What is written in a picture, panel labels and ticks included; matplotlib notes each as a comment."""
    return [found.strip() for found in re.findall(r"<!--(.*?)-->", svg.read_text())]


def panels(svg: Path) -> int:
    return len(re.findall(r'<g id="axes_\d+">', svg.read_text()))


def bands(svg: Path) -> int:
    return len(re.findall(r'<g id="\w*PolyCollection_\d+">', svg.read_text()))


def scenario(parameter: str, value: float, mean: float = 200.0) -> ScenarioRow:
    return {
        "parameter": parameter,
        "value": value,
        "mean_return": mean,
        "interval_low": mean - 10,
        "interval_high": mean + 10,
        "min_return": mean - 150,
        "max_return": mean + 80,
    }


class TestOneRun:
    def test_goes_into_its_folder_at_print_resolution(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run")
        assert plot_runs(run) == run / "curves.png"
        height, width = matplotlib.image.imread(run / "curves.png").shape[:2]
        assert (width, height) == (7.2 * 200, 4.5 * 200)
        assert sorted(path.name for path in run.iterdir()) == ["config.json", "curves.png", "metrics.csv"]

    def test_shows_all_six_panels_and_says_what_it_shows(self, tmp_path: Path) -> None:
        written = texts(plot_runs([make_run(tmp_path, seed=3, rows=200, interval=10_000)], tmp_path / "a.svg"))
        assert set(written) >= PANELS
        assert written.count("environment steps") == 3
        assert {"0.5M", "1M", "2M"} <= set(written)
        assert "A2C on LunarLander-v3, seed 3" in written
        assert "Faint: values as logged. Bold: moving average over 40k steps." in written

    def test_smoothing_can_be_turned_off(self, tmp_path: Path) -> None:
        run = make_run(tmp_path)
        assert "Values as logged." in texts(plot_runs(run, tmp_path / "a.svg", smoothing=0))

    def test_leaves_out_what_was_never_measured(self, tmp_path: Path) -> None:
        run = make_metrics(tmp_path, step=[1, 2, 3], entropy=[1, 2, 1], actor_loss=[None] * 3, steps_per_second=[9] * 3)
        picture = plot_runs(run, tmp_path / "a.svg")
        assert set(texts(picture)) & PANELS == {"policy entropy (nats)", "speed (steps/s)"}
        assert panels(picture) == 2

    @pytest.mark.parametrize("rows", [1, 2])
    def test_hardly_begun(self, tmp_path: Path, rows: int) -> None:
        picture = plot_runs(make_run(tmp_path, rows=rows), tmp_path / "a.svg")
        assert panels(picture) == (4 if rows == 1 else 6)  # in the first row no episode had ended

    def test_a_constant_or_huge_curve_has_room(self, tmp_path: Path) -> None:
        run = make_metrics(
            tmp_path,
            step=[0, 1],
            actor_loss=[0, 0],
            critic_loss=[1e-30, 1e30],
            episode_return=[5, 5],
            entropy=[-1, -1],
        )
        assert panels(plot_runs(run, tmp_path / "a.svg")) == 4

    def test_a_run_at_step_zero(self, tmp_path: Path) -> None:
        assert panels(plot_runs(make_metrics(tmp_path, step=[0], entropy=[1]), tmp_path / "a.svg")) == 1


class TestSeveralRuns:
    def test_seeds_are_one_curve_with_a_band(self, tmp_path: Path) -> None:
        runs = [make_run(tmp_path / str(seed), seed=seed, rows=150) for seed in range(3)]
        picture = plot_runs(runs, tmp_path / "a.svg")
        assert bands(picture) == panels(picture) == 6
        written = texts(picture)
        assert "A2C on LunarLander-v3, 3 seeds" in written
        assert "Line: mean over seeds of the moving average over 3k steps. Band: lowest to highest seed." in written
        assert set(written) >= PANELS

    def test_algorithms_are_told_apart(self, tmp_path: Path) -> None:
        runs = [make_run(tmp_path / f"a2c-{seed}", seed=seed) for seed in range(2)]
        runs += [make_run(tmp_path / f"ppo-{seed}", algo="ppo", seed=seed, interval=500) for seed in range(3)]
        written = texts(plot_runs(runs, tmp_path / "a.svg"))
        assert {"LunarLander-v3", "A2C (2 seeds)", "PPO (3 seeds)"} <= set(written)

    def test_interrupted_and_foreign_runs_do_not_spoil_the_others(self, tmp_path: Path) -> None:
        runs = [make_run(tmp_path / str(seed), seed=seed, rows=rows) for seed, rows in enumerate((50, 20, 1))]
        runs.append(make_metrics(tmp_path / "cash $5 and $6", step=[100], temperature=[0.2]))
        picture = plot_runs(runs, tmp_path / "a.svg")
        assert panels(picture) == 6
        written = texts(picture)
        assert {"A2C on LunarLander-v3 (3 seeds)", "run cash $5 and $6 (1 run)"} <= set(written)
        assert any("Runs that ended early count up to their end." in text for text in written)

    def test_more_curves_than_colours(self, tmp_path: Path) -> None:
        runs = [make_run(tmp_path / str(index), rows=5, gamma=index / 10) for index in range(9)]
        picture = plot_runs(runs, tmp_path / "a.svg")
        assert bands(picture) == 0
        written = texts(picture)
        assert {f"gamma={index / 10} (1 seed)" for index in range(9)} <= set(written)

    def test_go_into_the_working_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = [make_run(tmp_path / name, rows=5) for name in "ab"]
        monkeypatch.chdir(tmp_path)
        assert plot_runs(runs) == Path("curves.png")
        assert (tmp_path / "curves.png").exists()

    def test_a_folder_named_twice_is_one_run(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", rows=5)
        assert "A2C on LunarLander-v3, seed 0" in texts(plot_runs([run, str(run)], tmp_path / "a.svg"))


class TestFiles:
    @pytest.mark.parametrize(("name", "start"), [("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG")])
    def test_the_suffix_decides_the_format_and_equal_runs_give_equal_files(
        self, tmp_path: Path, name: str, start: bytes
    ) -> None:
        run = make_metrics(tmp_path / "run", step=[1, 2], entropy=[2, 1])
        first = plot_runs(run, tmp_path / "new" / name).read_bytes()
        assert first.startswith(start)
        assert plot_runs(run, tmp_path / "new" / name).read_bytes() == first

    def test_the_users_matplotlib_neither_matters_nor_changes(self, tmp_path: Path) -> None:
        run = make_metrics(tmp_path / "run", step=[1, 2], entropy=[2, 1])
        plain = plot_runs(run, tmp_path / "plain.png").read_bytes()
        with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30, "savefig.dpi": 30}):
            before = dict(matplotlib.rcParams)
            assert plot_runs(run, tmp_path / "styled.png").read_bytes() == plain
            assert dict(matplotlib.rcParams) == before

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"run_dirs": []}, "at least one run"),
            ({"smoothing": 1.5}, "from 0 to 1, got 1.5"),
            ({"smoothing": float("nan")}, "from 0 to 1"),
            ({"path": "curves.jpeg"}, r"\.png, \.pdf or \.svg, got 'curves\.jpeg'"),
        ],
    )
    def test_explains_what_it_cannot_draw(self, tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            plot_runs(**{"run_dirs": make_run(tmp_path, rows=2), **arguments})

    def test_explains_a_run_without_any_of_the_panels(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"nothing to draw.*none of episode_return, eval_return"):
            plot_runs(make_metrics(tmp_path, step=[1], entropy=[None], temperature=[1]))
        assert not (tmp_path / "curves.png").exists()

    def test_says_how_to_install_matplotlib(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(ModuleNotFoundError, match=r'pip install "envfleet\[train\]"'):
            plot_runs(make_run(tmp_path, rows=2))


class TestScenarios:
    def test_one_panel_a_parameter(self, tmp_path: Path) -> None:
        table = [scenario("gravity", value) for value in (-12, -2, -7)]
        table += [scenario("wind_power", value, mean=50) for value in (0, 10)]
        picture = plot_scenarios(table, tmp_path / "scenarios.svg")
        assert panels(picture) == 2
        written = texts(picture)
        assert {"gravity", "wind_power", "mean and its 95 % interval", "lowest and highest episode"} <= set(written)
        assert written.count("episode return") == 1

    def test_intervals_may_be_empty_or_unknown(self, tmp_path: Path) -> None:
        one: ScenarioRow = {**scenario("gravity", -3), "interval_low": 200.0000001, "interval_high": 200}
        other: ScenarioRow = {**scenario("gravity", -4), "interval_low": float("nan"), "interval_high": float("nan")}
        assert plot_scenarios([one, other], tmp_path / "scenarios.png").stat().st_size > 0

    def test_explains_a_table_it_cannot_draw(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="at least one scenario"):
            plot_scenarios([], tmp_path / "a.png")
        incomplete: Any = [scenario("gravity", 1), {"parameter": "gravity", "value": 2}]
        with pytest.raises(ValueError, match="row 1 of the scenarios lacks interval_high, interval_low, max_return"):
            plot_scenarios(incomplete, tmp_path / "a.png")
        with pytest.raises(ValueError, match=r"\.png, \.pdf or \.svg"):
            plot_scenarios([scenario("gravity", 1)], tmp_path / "a.txt")
        assert list(tmp_path.iterdir()) == []
