"""The program around the commands: overview, exit codes, and what it says when something is wrong or missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run

import envfleet as package


def in_a_new_interpreter(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"]])
def test_the_overview_lists_every_command_with_an_example(envfleet: Run, argv: list[str]) -> None:
    code, output, errors = envfleet(*argv)
    assert code == 0
    assert not errors
    for command in ("train", "evaluate", "plot", "report", "card", "export", "watch", "showcase", "tune"):
        assert f"\n  {command} " in output
        assert f"$ envfleet {command} " in output


@pytest.mark.parametrize(
    "command", ["train", "evaluate", "plot", "report", "card", "export", "watch", "showcase", "tune"]
)
def test_the_overviews_examples_are_understood(envfleet: Run, command: str) -> None:
    _, overview, _ = envfleet()
    example = next(line for line in overview.splitlines() if f"$ envfleet {command} " in line).split()[2:]
    code, output, errors = envfleet(*example, "--help")
    assert code == 0
    assert not errors
    for flag in (text for text in example if text.startswith("--")):
        assert flag in output


def test_the_version(envfleet: Run) -> None:
    assert envfleet("--version") == (0, f"envfleet {package.__version__}\n", "")


def test_an_unknown_command_is_refused_with_the_likely_one(envfleet: Run) -> None:
    code, output, errors = envfleet("trian", "CartPole-v1")
    assert code == 2
    assert not output
    known = "train, sweep, evaluate, plot, report, card, export, watch, showcase, tune"
    sentence = f"there is no command 'trian', did you mean 'train'? The commands are {known}."
    assert errors == f"envfleet: {sentence}\n"


def test_python_m_runs_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "envfleet", "nonsense"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "no command 'nonsense'" in done.stderr


def test_a_reader_who_has_seen_enough_causes_no_traceback() -> None:
    command = f"{sys.executable} -m envfleet showcase --help | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100)
    assert not done.stderr


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["evaluate", "--help"], ["tune", "--help"]])
def test_help_does_not_wait_for_torch(argv: list[str]) -> None:
    code = f"import sys; from envfleet.cli import main; code = main({argv!r}); sys.exit(code or 'torch' in sys.modules)"
    done = in_a_new_interpreter(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    ("missing", "argv"),
    [
        ("torch", ["train", "CartPole-v1"]),
        ("torch", ["evaluate", "somewhere"]),
        ("tyro", ["train", "--help"]),
        ("safetensors", ["showcase", "somewhere"]),
    ],
)
def test_without_the_extra_the_command_says_what_to_install(missing: str, argv: list[str]) -> None:
    block = f"import sys; sys.modules[{missing!r}] = None"
    done = in_a_new_interpreter(f"{block}; from envfleet.cli import main; sys.exit(main({argv!r}))")
    assert done.returncode == 1
    assert done.stderr == (
        f'envfleet: {missing} is needed for this and is not installed; run\n    pip install "envfleet[train]"\n'
    )


def test_what_a_command_needs_alone_is_asked_for_when_it_is_used(
    envfleet: Run, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, errors = envfleet("plot", trained)
    assert code == 1
    assert 'pip install "envfleet[train]"' in errors
    assert errors.count("\n") == 2


def test_a_surprise_keeps_its_traceback(envfleet: Run, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ValueError that nobody wrote for the user must not look as if somebody had."""
    monkeypatch.setattr("envfleet.train.judging.plots.plot_runs", lambda *_, **__: int("a mistake of ours"))
    with pytest.raises(ValueError, match="a mistake of ours"):
        envfleet("plot", trained)


def test_an_interruption_is_no_traceback(envfleet: Run, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("envfleet.train.judging.plots.plot_runs", interrupted)
    assert envfleet("plot", trained) == (130, "", "\nInterrupted.\n")
