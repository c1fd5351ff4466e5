"""`envfleet train` from the first line to the last."""

from __future__ import annotations

import csv
import dataclasses
import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from command_line import TINY, Run, flat
from unseen_env import Unseen

from envfleet.train import load_agent
from envfleet.train.algorithms.presets import preset_changes
from envfleet.train.running.reporting import TrainingResult, program, resume_command
from envfleet.train.running.run import RunContext, begin_run

CARTPOLE = ["CartPole-v1", *TINY]


@pytest.fixture
def unseen() -> Iterator[str]:
    gymnasium.register("Unseen-v0", Unseen, max_episode_steps=5)
    yield "Unseen-v0"
    del gymnasium.registry["Unseen-v0"]


def test_a_run_leaves_everything_and_says_where(envfleet: Run, tmp_path: Path) -> None:
    run = tmp_path / "a run"
    code, output, errors = envfleet("train", *CARTPOLE, "--total-steps", 1600, "--run-dir", run, "--eval-episodes", 4)
    assert code == 0, errors
    assert not errors
    for name in ("config.json", "metrics.csv", "actor.safetensors", "critic.safetensors", "curves.png"):
        assert (run / name).stat().st_size > 0
    assert (run / "showcase.mp4").stat().st_size > 1000
    assert (run / "showcase.png").stat().st_size > 1000
    found = json.loads((run / "evaluation.json").read_text())
    assert found["episodes"] == 4
    assert f"\nIn {run}:\n    evaluation  evaluation.json: mean return {found['mean_return']:.1f} ± " in output
    for line in (
        "Trained 1,600 steps in ",
        "    curves      curves.png\n",
        "    showcase    showcase.mp4, showcase.png (returns ",
    ):
        assert line in output
    assert f" showcase {shlex.quote(str(run))} --episodes 5 --seed 1" in output


def test_the_commands_to_try_next_work(envfleet: Run, unseen: str, tmp_path: Path) -> None:
    argv = ["--randomize", "bonus=uniform(1, 2)", "--total-steps", "64", "--run-dir", tmp_path / "run"]
    code, output, _ = envfleet("train", unseen, *TINY, *argv, "--eval-episodes", "2")
    assert code == 0
    commands = [line.strip() for line in output.partition("To try next:\n")[2].splitlines()]
    evaluations = [command for command in commands if " evaluate " in command]
    assert len(evaluations) == 2
    assert "--randomize 'bonus=uniform(1, 2)'" in evaluations[1]
    for command in evaluations:
        words = shlex.split(command.replace("--episodes 1000", "--episodes 4"))
        code, output, errors = envfleet(*words[words.index("evaluate") :])
        assert code == 0, errors
        assert "mean return" in output


def test_what_cannot_be_filmed_is_said_in_a_line_and_the_rest_is_done(
    envfleet: Run, unseen: str, tmp_path: Path
) -> None:
    code, output, errors = envfleet("train", unseen, *TINY, "--total-steps", "64", "--run-dir", tmp_path / "run")
    assert code == 0
    assert not errors
    (line,) = (line for line in output.splitlines() if line.startswith("    showcase"))
    assert "not made: Unseen-v0 cannot be filmed" in line
    assert (tmp_path / "run" / "evaluation.json").exists()
    assert "To try next:" in output


def test_a_failure_afterwards_does_not_lose_the_training(
    envfleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envfleet.cli.after_training.plot_runs", lambda _: 1 / 0)
    argv = ["--total-steps", "64", "--run-dir", tmp_path / "run", "--eval-episodes", "0", "--no-showcase"]
    code, output, _ = envfleet("train", *CARTPOLE, *argv)
    assert code == 0
    assert "curves      not made: ZeroDivisionError: division by zero\n" in output
    assert "To try next:" in output


def test_an_interruption_afterwards_says_how_to_get_the_rest(
    envfleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("envfleet.cli.after_training.plot_runs", interrupted)
        argv = ["--total-steps", "64", "--run-dir", tmp_path / "run", "--eval-episodes", "0", "--no-showcase"]
        code, output, _ = envfleet("train", *CARTPOLE, *argv)
    assert code == 130
    assert output.splitlines()[-1] == f"    {program('envfleet')} train --resume {tmp_path}/run"
    code, _, _ = envfleet("train", "--resume", tmp_path / "run", "--eval-episodes", "0", "--no-showcase")
    assert code == 0
    assert (tmp_path / "run" / "curves.png").exists()


def test_parts_that_are_not_wanted_are_left_out(envfleet: Run, tmp_path: Path) -> None:
    argv = ["--total-steps", "64", "--run-dir", tmp_path / "run", "--eval-episodes", "0", "--no-showcase"]
    code, output, _ = envfleet("train", *CARTPOLE, *argv)
    assert code == 0
    assert not (tmp_path / "run" / "evaluation.json").exists()
    assert not (tmp_path / "run" / "showcase.mp4").exists()
    assert "    evaluation  " not in output
    assert "    showcase  " not in output


def test_a_preset_is_named_once_it_has_an_effect(envfleet: Run, tmp_path: Path) -> None:
    argv = [*CARTPOLE, "--run-dir", tmp_path / "run", "--loggers", "nosuch"]
    _, output, _ = envfleet("train", *argv)
    assert re.fullmatch(r"Settings known to suit CartPole-v1: total_steps=\d+.*\.\n", output)
    _, output, _ = envfleet("train", "Taxi-v4", *TINY, "--run-dir", tmp_path / "run", "--loggers", "nosuch")
    assert output == "No tuned settings for Taxi-v4: the defaults of a2c are used.\n"


@pytest.mark.parametrize(
    ("env_id", "line"),
    [
        ("Pendulum-v1", "Algorithm: sac, which is tuned for Pendulum-v1; --algo takes another."),
        (
            "Taxi-v4",
            "Algorithm: ppo, which takes every kind of action; --algo takes another. No tuned settings for Taxi-v4: "
            "the defaults of ppo are used.",
        ),
    ],
)
def test_the_algorithm_is_named_unless_it_was_asked_for(envfleet: Run, env_id: str, line: str, tmp_path: Path) -> None:
    argv = [env_id, "--run-dir", tmp_path / "run", "--loggers", "nosuch"]
    _, output, _ = envfleet("train", *argv)
    assert output.splitlines()[0] == line
    _, output, _ = envfleet("train", *argv, "--algo", "ppo")
    assert "Algorithm: " not in output


def test_a_preset_that_is_overruled_is_not_named(envfleet: Run, tmp_path: Path) -> None:
    changes = preset_changes("LunarLander-v3", "ppo")
    assert set(changes) == {"gamma", "gae_lambda", "normalize_observations", "normalize_rewards", "reward_scale"}
    others = ["--normalize-observations", "--normalize-rewards", "--reward-scale", "2", "--algo", "ppo"]
    others += ["--gamma", "0.9", "--gae-lambda", "0.5"]
    _, output, _ = envfleet("train", "LunarLander-v3", *others, "--run-dir", tmp_path / "run", "--loggers", "nosuch")
    assert not output


def test_settings_reach_the_run(envfleet: Run, unseen: str, tmp_path: Path) -> None:
    argv = ["--seed", "5", "--total-steps", "64", "--run-dir", tmp_path / "run", "--env-kwargs", "bonus=3"]
    code, _, errors = envfleet("train", unseen, *TINY, *argv, "--eval-episodes", "2", "--no-showcase")
    assert code == 0, errors
    agent = load_agent(tmp_path / "run")
    assert agent.config.seed == 5
    assert agent.config.env_kwargs == {"bonus": 3}
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["mean_return"] >= 15


def test_a_folder_with_a_run_is_left_alone(envfleet: Run, trained: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    code, _, errors = envfleet("train", *CARTPOLE, "--run-dir", trained)
    assert code == 1
    assert f"{trained} already holds a run" in errors
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


def test_without_wandb_nothing_begins(envfleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    code, _, errors = envfleet("train", *CARTPOLE, "--wandb", "--run-dir", tmp_path / "run")
    assert code == 1
    assert 'pip install "envfleet[wandb]"' in errors
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("others", [["CartPole-v1"], ["--num-envs", "3"], ["--gamma=0.9", "X-v0"]])
def test_resuming_takes_no_settings(envfleet: Run, trained: Path, others: list[str]) -> None:
    code, output, errors = envfleet("train", "--resume", trained, *others)
    assert code == 2
    assert not output
    assert f"leave out {shlex.join(others)} and write\n    envfleet train --resume {trained}\n" in errors


@pytest.mark.parametrize("argv", [["--resume", "nowhere"], ["--resume=nowhere"]])
def test_only_a_run_can_be_resumed(envfleet: Run, argv: list[str]) -> None:
    code, _, errors = envfleet("train", *argv)
    assert code == 1
    assert "nowhere does not exist" in errors


def test_resuming_has_a_help_text_of_its_own(envfleet: Run) -> None:
    code, output, _ = envfleet("train", "--resume", "somewhere", "--help")
    assert code == 0
    assert "All its settings stay as they are." in flat(output)
    assert "--num-envs" not in output


def test_resuming_a_finished_run_repeats_nothing_and_does_what_is_asked_for(envfleet: Run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    envfleet("train", *CARTPOLE, "--total-steps", "64", "--run-dir", run, "--eval-episodes", "0", "--no-showcase")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if "tfevents" not in path.name}
    code, output, errors = envfleet("train", "--resume", run)
    assert code == 0, errors
    assert "    curves      already there: curves.png\n" in output
    assert "To try next:" in output
    files = (path for path in run.rglob("*") if "tfevents" not in path.name and path.name != "metrics.csv")
    assert {path: path.stat().st_mtime_ns for path in files if path.is_file()}.items() <= before.items()
    for _ in range(2):  # asked for by name it is done, however often
        code, output, errors = envfleet("train", "--resume", run, "--eval-episodes", "2")
        assert code == 0, errors
        assert "    evaluation  evaluation.json: mean return" in output
    assert json.loads((run / "evaluation.json").read_text())["episodes"] == 2
    assert not (run / "showcase.mp4").exists()


def test_a_run_is_extended_and_then_judged_again(
    envfleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    envfleet("train", *CARTPOLE, "--total-steps", "64", "--eval-episodes", "2", "--no-showcase")
    code, output, errors = envfleet("train", "--resume", "latest", "--total-steps", "128")
    assert code == 0, errors
    assert "run: runs/CartPole-v1/a2c-seed0-" in errors
    assert "Trained 128 steps" in output
    assert "    evaluation  evaluation.json: mean return" in output
    code, _, errors = envfleet("evaluate", "runs", "--episodes", "1")
    assert code == 0, errors


def test_several_seeds_are_one_training_that_can_be_stopped(envfleet: Run, tmp_path: Path) -> None:
    parent = tmp_path / "seeds"
    argv = ["--total-steps", "64", "--run-dir", parent, "--seeds", "3", "4", "--eval-episodes", "2", "--no-showcase"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("envfleet.cli.seeds.begin_run", _stopping_after_one(begin_run))
        code, output, errors = envfleet("train", *CARTPOLE, *argv)
    assert code == 130
    assert f"To go on with all seeds:\n    {resume_command(parent, 'CartPole-v1')}\n" in output
    code, output, errors = envfleet("train", "--resume", parent)
    assert code == 0, errors
    summary = json.loads((parent / "summary.json").read_text())
    assert [row["seed"] for row in summary["seeds"]] == [3, 4]
    assert summary["worst_return"] == min(row["mean_return"] for row in summary["seeds"])
    assert re.search(r"Mean over 2 seeds: [\d.]+\. Worst: [\d.]+ \(seed [34]\)", output)
    assert (parent / "curves.png").exists()
    assert load_agent(parent / "seed4").config.seed == 4
    code, output, _ = envfleet("train", "--resume", parent)
    assert code == 0
    assert "    evaluation  " not in output  # it is there
    code, _, errors = envfleet("evaluate", parent)
    assert code == 1
    assert "give one of seed3, seed4" in errors
    code, output, _ = envfleet("plot", parent, "--output", tmp_path / "both.png", "--x", "seconds")
    assert code == 0
    assert (tmp_path / "both.png").exists()


def _stopping_after_one(begin: Callable[..., TrainingResult]) -> Callable[..., TrainingResult]:
    """The second run that is begun is stopped as if by Ctrl-C, in its first rollout."""
    calls = iter(range(10))

    def begin_and_stop(config: Any, path: Path, context: RunContext, *rest: Any) -> TrainingResult:
        if next(calls):
            context = dataclasses.replace(context, callback=lambda _: False)
        return begin(config, path, context, *rest)

    return begin_and_stop


def test_several_seeds_that_cannot_begin_leave_no_folder(envfleet: Run, tmp_path: Path) -> None:
    code, _, errors = envfleet("train", "NoSuchEnv-v0", *TINY, "--run-dir", tmp_path / "seeds", "--seeds", "1", "2")
    assert code == 1, errors
    assert not (tmp_path / "seeds").exists()


@pytest.mark.parametrize(("kind", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_stops_and_saves_it(
    kind: signal.Signals, code: int, envfleet: Run, unseen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, calls = Unseen.step, iter(range(10**9))

    def stopping(self: Unseen, action: Any) -> Any:
        if next(calls) == 70:
            signal.raise_signal(kind)
        return step(self, action)

    quick = ["--eval-episodes", "0", "--no-showcase"]
    with monkeypatch.context() as patch:
        patch.setattr(Unseen, "step", stopping)
        argv = [*TINY, "--total-steps", "320", "--run-dir", tmp_path / "run", *quick]
        found, output, errors = envfleet("train", unseen, *argv)
    assert found == code, errors
    assert output.splitlines()[-1] == f"    {program('envfleet')} train --resume {tmp_path}/run"
    assert "Stopped at 96 of 320 steps" in output
    assert envfleet("train", "--resume", tmp_path / "run", *quick)[0] == 0


PROGRAM = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may have chosen to ignore it
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from envfleet.cli import main
sys.exit(main())
"""
LONG = ["CartPole-v1", "--num-envs", "4", "--rollout-steps", "32", "--hidden-sizes", "16", "--critic-updates", "1"]
LONG += ["--total-steps", "20000", "--algo", "a2c"]


def started(argv: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *argv], start_new_session=True, **streams)


def learnt(run: Path) -> list[dict[str, str]]:
    """The rows of a run's metrics without those about time."""
    with (run / "metrics.csv").open() as file:
        return [
            {name: cell for name, cell in row.items() if name not in ("seconds", "steps_per_second")}
            for row in csv.DictReader(file)
        ]


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(envfleet: Run, tmp_path: Path) -> None:
    argv = ["train", *LONG, "--backend", "sync"]
    process = started([*argv, "--run-dir", str(tmp_path / "cut")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    output = b""
    while b" 10 %" not in output:
        line = process.stdout.readline()
        assert line, output.decode()
        output += line
    process.send_signal(signal.SIGINT)
    output += process.communicate(timeout=60)[0]
    text = output.decode()
    assert process.returncode == 130, text
    assert "Traceback" not in text
    assert "Stopped at " in text
    assert "evaluation" not in text
    assert not (tmp_path / "cut" / "curves.png").exists()
    assert (tmp_path / "cut" / "checkpoint" / "latest.safetensors").exists()

    command = text.splitlines()[-1].split()
    assert command[-3:] == ["train", "--resume", str(tmp_path / "cut")]
    quick = ["--eval-episodes", "0", "--no-showcase"]
    code, _, errors = envfleet(*command[-3:], *quick)
    assert code == 0, errors
    code, _, errors = envfleet(*argv, "--run-dir", tmp_path / "whole", *quick)
    assert code == 0, errors
    whole = learnt(tmp_path / "whole")
    assert len(whole) > 50
    assert learnt(tmp_path / "cut") == whole


def test_in_a_terminal_there_is_a_bar_and_ctrl_c_reaches_the_workers_too(tmp_path: Path) -> None:
    terminal, tail = pty.openpty()
    fcntl.ioctl(tail, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    argv = ["train", *LONG, "--backend", "process", "--run-dir", str(tmp_path / "run")]
    process = started(argv, stdin=tail, stdout=tail, stderr=tail)
    os.close(tail)
    output = b""
    while b"return" not in output:
        output += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while piece := os.read(terminal, 4096):
            output += piece
    except OSError:  # how Linux says that nobody has the other end any more
        pass
    os.close(terminal)
    text = output.decode()
    assert process.wait(timeout=60) == 130, text
    assert "Traceback" not in text
    assert re.search(r"━.* \d+%.* \d+k/20k  .* steps/s  return \d+\.\d  0:\d\d, \d+:\d\d left", text)
    assert text.rstrip().endswith(f"envfleet train --resume {tmp_path}/run")
    assert (tmp_path / "run" / "checkpoint" / "latest.safetensors").exists()
