"""`envfleet evaluate`, `plot` and `showcase` on a finished run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Run

from envfleet.train import evaluate

QUICK = ["--episodes", "4", "--backend", "sync"]


def test_the_table(envfleet: Run, trained: Path) -> None:
    code, output, errors = envfleet("evaluate", trained, *QUICK, "--seed", "3")
    expected = evaluate(trained, episodes=4, seed=3, backend="sync")
    assert code == 0
    assert not errors
    headline, row = output.splitlines()
    assert headline.split() == ["mean", "return", "worst", "best", "length", "shortest", "longest", "episodes"]
    assert row.split()[:4] == ["CartPole-v1", f"{expected.mean_return:.1f}", "±", f"{expected.half_interval:.1f}"]


def test_json_is_one_line_with_the_figures(envfleet: Run, trained: Path) -> None:
    code, output, errors = envfleet("evaluate", trained, *QUICK, "--json")
    assert code == 0
    assert not errors
    assert output.endswith("\n")
    assert output.count("\n") == 1
    found = json.loads(output)
    assert found == evaluate(trained, episodes=4, backend="sync").to_json_dict()
    assert {"mean_return", "std_return", "episodes"} <= found.keys()


def test_settings_reach_the_evaluation(envfleet: Run, trained: Path) -> None:
    argv = ["--env-kwargs", "max_episode_steps=3", "--num-envs", "2", "--stochastic"]
    _, output, _ = envfleet("evaluate", trained, *QUICK, *argv, "--json")
    found = json.loads(output)
    assert found["max_length"] == 3
    assert found["parameters"] == {"max_episode_steps": 3}
    argv = ["--randomize", "max_episode_steps=choice(2, 4)"]
    _, output, _ = envfleet("evaluate", trained, *QUICK, *argv, "--json")
    assert json.loads(output)["max_length"] <= 4


def test_a_sweep_is_a_table_and_a_plot(envfleet: Run, trained: Path) -> None:
    code, output, errors = envfleet("evaluate", trained, *QUICK, "--sweep", "max_episode_steps=2:6:3")
    assert code == 0
    assert not errors
    lines = output.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [f"max_episode_steps={limit}" for limit in (2, 4, 6)]
    assert lines[-1] == f"plot: {trained}/scenarios.png"
    assert (trained / "scenarios.png").stat().st_size > 1000
    kept = json.loads((trained / "scenarios.json").read_text())
    assert [row["value"] for row in kept["scenarios"]] == [2, 4, 6]


def test_a_sweep_as_json_is_one_line_with_a_list(envfleet: Run, trained: Path, tmp_path: Path) -> None:
    sweeps = ["max_episode_steps=2,4", "sutton_barto_reward=True,False"]
    plot = tmp_path / "plot.svg"
    code, output, errors = envfleet("evaluate", trained, *QUICK, "--sweep", *sweeps, "--plot", plot, "--json")
    assert code == 0
    assert not errors
    assert output.count("\n") == 1
    found = json.loads(output)
    assert [(row["parameter"], row["value"]) for row in found["scenarios"]] == [
        ("max_episode_steps", 2),
        ("max_episode_steps", 4),
        ("sutton_barto_reward", True),
        ("sutton_barto_reward", False),
    ]
    assert [row["mean_return"] for row in found["scenarios"][:2]] == [2.0, 4.0]
    assert plot.exists()


def test_a_scenario_that_is_refused_costs_only_itself(envfleet: Run, trained: Path, tmp_path: Path) -> None:
    argv = ["--sweep", "render_mode='nonsense',None", "--plot", tmp_path / "plot.png"]
    with pytest.warns(UserWarning, match="nonsense"):
        code, output, errors = envfleet("evaluate", trained, *QUICK, *argv)
    assert code == 0
    assert "render_mode=nonsense" in output
    assert "No plot" in errors
    assert not (tmp_path / "plot.png").exists()


@pytest.mark.parametrize(
    ("argv", "code", "expected"),
    [
        (["nowhere"], 1, "nowhere does not exist"),
        (["RUN", "--episodes", "0"], 1, "episodes must be 1 or more, got 0"),
        (["RUN", "--sweep", "gravity=1:2:3"], 1, "CartPole-v1 has no parameter 'gravity'"),
        (["RUN", "--sweep", "sutton_barto_reward=True", "gravity=1,2"], 1, "CartPole-v1 has no parameter 'gravity'"),
        (["RUN", "--sweep", "gravity=1,2", "--plot", "plot.txt"], 1, "must end in .png, .pdf or .svg, got 'plot.txt'"),
        (["RUN", "--sweep", "gravity"], 2, "expected a parameter's name, an equals sign and what it is to be"),
        (["RUN", "--sweep", "a=1,2", "--sweep", "b=1,2"], 2, "--sweep is given twice"),
        (["RUN", "--plot", "x.png"], 2, "--plot draws a sweep"),
        (["RUN", "--env-kwargs", "foo=1"], 1, "unexpected keyword argument 'foo'"),
        ([], 2, "RUN"),
    ],
)
def test_what_cannot_be_evaluated(envfleet: Run, trained: Path, argv: list[str], code: int, expected: str) -> None:
    got, output, errors = envfleet("evaluate", *(trained if text == "RUN" else text for text in argv))
    assert got == code
    assert not output
    assert expected in " ".join(errors.replace("│", " ").split())
    assert "Traceback" not in errors


def test_curves_of_one_run_and_of_several(envfleet: Run, trained: Path, tmp_path: Path) -> None:
    (trained / "curves.png").unlink(missing_ok=True)
    assert envfleet("plot", trained) == (0, f"{trained}/curves.png\n", "")
    assert (trained / "curves.png").exists()
    target = tmp_path / "several.svg"
    assert envfleet("plot", trained, trained, "--output", target, "--smoothing", "0") == (0, f"{target}\n", "")
    assert "values as logged" in target.read_text().lower()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], "needs at least one run"),
        (["nowhere"], "nowhere does not exist"),
        (["RUN", "--output", "x.txt"], "must end in .png, .pdf or .svg"),
        (["RUN", "--smoothing", "3"], "smoothing is a share of the run"),
    ],
)
def test_what_cannot_be_plotted(envfleet: Run, trained: Path, argv: list[str], expected: str) -> None:
    code, output, errors = envfleet("plot", *(trained if text == "RUN" else text for text in argv))
    assert code == 1
    assert not output
    assert expected in errors


def test_a_video(envfleet: Run, trained: Path, tmp_path: Path) -> None:
    target = tmp_path / "film.mp4"
    argv = ["--episodes", "2", "--seed", "1", "--output", target, "--env-kwargs", "max_episode_steps=4"]
    code, output, errors = envfleet("showcase", trained, *argv)
    assert code == 0, errors
    assert output == (
        f"episode 1: return 4.000 in 4 steps\nepisode 2: return 4.000 in 4 steps\n"
        f"video: {target}\nstill: {tmp_path}/film.png\n"
    )
    assert target.stat().st_size > 1000
    assert (tmp_path / "film.png").stat().st_size > 1000


def test_a_mosaic_as_a_gif(envfleet: Run, trained: Path, tmp_path: Path) -> None:
    argv = ["--mosaic", "--no-caption", "--output", tmp_path / "film.gif", "--env-kwargs", "max_episode_steps=4"]
    code, output, errors = envfleet("showcase", trained, *argv)
    assert code == 0, errors
    assert output.count("return 4.000 in 4 steps") == 3
    assert (tmp_path / "film.gif").read_bytes().startswith(b"GIF89a")


def test_a_window(envfleet: Run, trained: Path, tmp_path: Path) -> None:
    argv = ["--human", "--episodes", "2", "--env-kwargs", "max_episode_steps=4"]
    code, output, errors = envfleet("showcase", trained, *argv)
    assert code == 0, errors
    assert output == "episode 1: return 4.000 in 4 steps\nepisode 2: return 4.000 in 4 steps\n"
    code, _, errors = envfleet("showcase", trained, "--human", "--mosaic", "--output", tmp_path / "x.mp4")
    assert code == 2
    assert "--human opens a window and makes no film, so leave out --output and --mosaic" in errors


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["RUN", "--output", "x.avi"], "must end in .mp4 or .gif"),
        (
            ["RUN", "--output", "/dev/null/x.mp4"],
            "cannot be written to /dev/null/x.mp4: /dev/null: Not a dir",
        ),
        (["RUN", "--episodes", "0"], "episodes must be 1 or more"),
        (["RUN", "--human"], "there is no screen to open a window on"),
    ],
)
def test_what_cannot_be_filmed(
    envfleet: Run, trained: Path, argv: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    code, output, errors = envfleet("showcase", *(trained if text == "RUN" else text for text in argv))
    assert code == 1
    assert not output
    assert expected in errors


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("evaluate", ["--sweep NAME=START:STOP:COUNT ...", "--json", "--stochastic", "RUN", "95 % interval"]),
        ("plot", ["RUN ...", "--smoothing FLOAT", "--output PATH", ".pdf and .svg for print"]),
        ("showcase", ["RUN", "--episodes INT", "--randomize NAME=DISTRIBUTION|PRESET ...", "ending in .mp4"]),
    ],
)
def test_help(envfleet: Run, command: str, expected: list[str]) -> None:
    code, output, errors = envfleet(command, "--help")
    assert code == 0
    assert not errors
    for text in expected:
        assert text in output
