from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from envfleet.train.config import A2CConfig
from envfleet.train.running.reporting import (
    BarReporter,
    LineReporter,
    Progress,
    Reporter,
    TrainingResult,
    console_reporter,
    duration,
    program,
    score,
)

CONFIG = A2CConfig("LunarLander-v3", num_envs=16, seed=7, total_steps=1_000_000)
RUN = Path("runs/my lander")
AGENT: Any = SimpleNamespace(config=CONFIG)  # of an agent, reporters show no more
ENVS: Any = "environments"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def begin(reporter: Reporter, step: int = 0, config: A2CConfig = CONFIG) -> None:
    reporter.begin(config, RUN, "sync: it is quick.", step)


def progress(step: int, mean_return: float | None = 12.5, seconds: float = 65.0) -> Progress:
    return Progress(step, CONFIG.total_steps, seconds, 34, mean_return, {}, AGENT, ENVS)


def result(step: int, *, finished: bool, mean_return: float | None = 243.21) -> TrainingResult:
    return TrainingResult(RUN, AGENT, step, 100.0, mean_return, finished)


@pytest.fixture(params=[LineReporter, BarReporter])
def reporter(request: pytest.FixtureRequest) -> Reporter:
    made: Reporter = request.param(Clock())
    return made


def test_the_heading_says_what_is_trained_where_and_how(reporter: Reporter, capsys: pytest.CaptureFixture[str]) -> None:
    begin(reporter)
    reporter.end(None)
    output = capsys.readouterr().out
    assert output.startswith(
        "A2C on 16 x LunarLander-v3, 1,000,000 steps, seed 7\n"
        "environments: sync: it is quick.\n"
        "run folder: runs/my lander\n"
    )
    assert "goes on" not in output


def test_a_resumed_run_says_where_it_goes_on(reporter: Reporter, capsys: pytest.CaptureFixture[str]) -> None:
    begin(reporter, step=250_000)
    reporter.end(None)
    assert "resumed at step 250,000\n" in capsys.readouterr().out


def test_a_finished_run_ends_with_a_summary(reporter: Reporter, capsys: pytest.CaptureFixture[str]) -> None:
    begin(reporter)
    reporter.report(progress(999_680))
    reporter.end(result(999_680, finished=True))
    assert capsys.readouterr().out.endswith(
        "Trained 999,680 steps in 1:40 (9,997 steps/s); mean return of the last 100 episodes 243.2.\n"
    )


def test_a_stopped_run_says_how_to_go_on(reporter: Reporter, capsys: pytest.CaptureFixture[str]) -> None:
    begin(reporter)
    reporter.end(result(320_000, finished=False, mean_return=None))
    assert capsys.readouterr().out.endswith(
        "Stopped at 320,000 of 1,000,000 steps after 1:40.\n"
        "Everything is saved. To go on:\n"
        f"    {program('envfleet')} train --resume 'runs/my lander'\n"
    )


def test_a_run_that_only_this_program_can_make_goes_on_in_it(
    reporter: Reporter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = A2CConfig(lambda: None, total_steps=1_000_000)  # type: ignore[arg-type, return-value]
    begin(reporter, config=own)
    assert "load_agent('runs/my lander', env=make_env)" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr(AGENT, "config", own)
    reporter.end(result(320_000, finished=False))
    assert capsys.readouterr().out.endswith("envfleet.train.resume('runs/my lander', env=make_env)\n")


def test_an_error_is_left_to_whoever_tells_it(reporter: Reporter, capsys: pytest.CaptureFixture[str]) -> None:
    begin(reporter)
    reporter.report(progress(500))
    capsys.readouterr()
    reporter.end(None)
    output = capsys.readouterr().out
    assert "Trained" not in output
    assert "Stopped" not in output


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if re.match(r" *\d+ %", line)]


def test_lines_come_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = LineReporter(clock)
    begin(reporter)
    for second in range(1, 36):
        clock.now += 1
        reporter.report(progress(second * 100))
    steps = [int(re.findall(r"step +(\d+)/", line)[0]) for line in lines_of(capsys)]
    assert steps == [1000, 2000, 3000]


def test_lines_come_every_tenth_of_a_quick_run(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = LineReporter(clock)
    begin(reporter)
    for step in range(30_000, 1_000_001, 30_000):
        clock.now += 0.01
        reporter.report(progress(step))
    steps = [int(re.findall(r"step +(\d+)/", line)[0]) for line in lines_of(capsys)]
    assert steps == [120_000, 210_000, 300_000, 420_000, 510_000, 600_000, 720_000, 810_000, 900_000]


def test_a_line_can_be_read_by_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = LineReporter(clock)
    begin(reporter)
    for mean_return in (None, -12.345):
        clock.now += 20
        reporter.report(progress(int(clock.now - 1000) * 5000, mean_return))
    first, second = lines_of(capsys)
    words = "10 % step 100000/1000000 5000 steps/s return - episodes 34 elapsed 1:05 left 3:00"
    assert " ".join(first.split()) == words
    words = "20 % step 200000/1000000 5000 steps/s return -12.3 episodes 34 elapsed 1:05 left 2:40"
    assert " ".join(second.split()) == words
    assert len(first) == len(second)


def test_the_speed_is_that_of_the_last_half_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """Learning may begin late and slow everything down; an estimate over the whole run would be wrong for long."""
    clock = Clock()
    reporter = LineReporter(clock)
    begin(reporter)
    step = 0
    for second in range(1, 121):
        clock.now += 1
        step += 1000 if second <= 60 else 100
        reporter.report(progress(step))
    assert " 100 steps/s" in lines_of(capsys)[-1]


def test_a_resumed_runs_speed_does_not_count_earlier_steps(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = LineReporter(clock)
    begin(reporter, step=500_000)
    clock.now += 10
    reporter.report(progress(501_000))
    assert " 100 steps/s" in lines_of(capsys)[-1]


@pytest.fixture(params=[100])
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Makes rich draw as in a terminal, though its output is captured; returns the number of columns."""
    console = Console(force_terminal=True, force_interactive=True, width=request.param, legacy_windows=False)
    monkeypatch.setattr("rich._console", console)
    return int(request.param)


@pytest.mark.usefixtures("terminal")
def test_the_bar_is_drawn_twice_a_second_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = BarReporter(clock)
    begin(reporter)
    capsys.readouterr()
    for step in range(1000, 201_000, 1000):
        clock.now += 0.01
        reporter.report(progress(step))
    drawn = capsys.readouterr().out.count("steps/s")
    reporter.end(None)
    assert drawn == 4


@pytest.mark.usefixtures("terminal")
def test_the_bar_shows_how_far_how_fast_how_good_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = BarReporter(clock)
    begin(reporter)
    clock.now += 20
    reporter.report(progress(250_000))
    drawn = plain(capsys.readouterr().out)
    assert re.search(r"━+╸?━* +25% 0\.25M/1M  12\.5k steps/s  return 12\.5  1:05, 1:00 left", drawn)
    reporter.report(progress(999_680))
    reporter.end(result(999_680, finished=True))
    ended = plain(capsys.readouterr().out)
    assert re.search(r"100% 1\.00M/1M .* return 12\.5  1:05 *\n", ended)
    assert ended.endswith("mean return of the last 100 episodes 243.2.\n")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.parametrize("terminal", [30, 60, 80, 200], indirect=True)
def test_the_bar_fits_the_terminal(terminal: int, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    reporter = BarReporter(clock)
    begin(reporter)
    capsys.readouterr()
    clock.now += 10
    reporter.report(progress(123_456))
    drawn = plain(capsys.readouterr().out).strip("\r")
    reporter.end(None)
    assert "\n" not in drawn
    assert len(drawn) <= terminal
    assert "0.12M/1M" in drawn


@pytest.mark.parametrize(
    ("tty", "term", "installed", "kind"),
    [
        (True, "xterm", True, BarReporter),
        (True, "dumb", True, LineReporter),
        (True, "xterm", False, LineReporter),
        (False, "xterm", True, LineReporter),
    ],
)
def test_what_suits_the_output(tty: bool, term: str, installed: bool, kind: type, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: (name == "rich" and installed) or None)
    assert type(console_reporter()) is kind


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python in a folder of its own, with an envfleet beside it."""
    script = tmp_path / "my project" / ".venv" / "bin" / "envfleet"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    monkeypatch.setenv("PATH", "/nowhere")
    return script


def test_a_program_that_the_shell_finds_goes_by_its_name(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(installed.parent))
    assert program("envfleet") == "envfleet"


def test_a_program_that_the_shell_does_not_find_goes_by_its_path(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `make train`, where nobody has activated the virtual environment."""
    assert program("envfleet") == f"'{installed}'"
    monkeypatch.chdir(installed.parents[2])
    assert program("envfleet") == ".venv/bin/envfleet"


def test_another_installations_program_is_not_meant(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "envfleet").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program("envfleet") == f"'{installed}'"


def test_without_a_script_python_runs_the_module(installed: Path) -> None:
    installed.unlink()
    assert program("envfleet") == f"'{installed.parent}/python' -m envfleet"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (7.9, "0:07"), (754, "12:34"), (3723, "1:02:03")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(243.26, "243.3"), (-10.0, "-10.0"), (0.8544, "0.854"), (-9.5, "-9.500")])
def test_scores(value: float, text: str) -> None:
    assert score(value) == text
