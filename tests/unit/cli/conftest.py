from __future__ import annotations

import warnings
from pathlib import Path

import gymnasium
import pytest
from command_line import TINY, Run

from envfleet.cli import main


@pytest.fixture
def envfleet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line in this process; returns its exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")

    def run(*argv: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(text) for text in argv])
        output, errors = capsys.readouterr()
        return code, output, errors

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on CartPole-v1, for tests that only read it."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    argv = ["train", "CartPole-v1", *TINY, "--total-steps", "320", "--run-dir", str(folder)]
    assert main([*argv, "--eval-episodes", "0", "--no-showcase"]) == 0
    return folder


@pytest.fixture(scope="session")
def box2d() -> None:
    """Box2D warns while it is imported, and crashes where that is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gymnasium.make("LunarLander-v3").close()
