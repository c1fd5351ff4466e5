"""Somebody else's run folder executes nothing that nobody has allowed."""

from __future__ import annotations

import io
import json
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import CONFIGS, ROLLOUT, changed, stop_at

from envfleet import choice
from envfleet.cli import main
from envfleet.errors import UntrustedRunError
from envfleet.train import Sweep, evaluate, evaluate_sweep, load_agent, plot_runs, resume, showcase, train
from envfleet.train.folders.trust import modules_named

MODULE = "stranger_module"
SOURCE = """
import pathlib
pathlib.Path(__file__).with_suffix(".mark").touch()
import tiny_envs
"""
ENV_ID = f"{MODULE}:tiny/AnySpace-v0"


@pytest.fixture(autouse=True)
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that leaves a mark when it is imported, and a home that remembers nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{MODULE}.py").write_text(SOURCE)
    yield tmp_path / "modules" / f"{MODULE}.mark"
    sys.modules.pop(MODULE, None)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trust") / "run"
    return train(CONFIGS["a2c"], run_dir=run, callback=stop_at([2 * ROLLOUT]), progress=False).run_dir


def edited(run: Path, **settings: Any) -> Path:
    content = json.loads((run / "config.json").read_text())
    content["config"].update(settings)
    (run / "config.json").write_text(json.dumps(content))
    return run


@pytest.fixture
def sent(finished: Path, tmp_path: Path) -> Path:
    """A folder that somebody has sent."""
    return edited(Path(shutil.copytree(finished, tmp_path / "sent")), env_id=ENV_ID)


CALLS: dict[str, Callable[..., Any]] = {
    "load_agent": load_agent,
    "evaluate": lambda run, **allowed: evaluate(run, episodes=1, backend="sync", **allowed),
    "evaluate_sweep": lambda run, **allowed: evaluate_sweep(run, Sweep("gain", (1.0,)), episodes=1, **allowed),
    "showcase": showcase,
    "resume": lambda run, **allowed: resume(run, progress=False, **allowed),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_a_module_named_by_a_stranger_is_not_imported(name: str, sent: Path, mark: Path) -> None:
    before = {path: path.read_bytes() for path in sent.rglob("*") if path.is_file()}
    for allowed in ({}, {"allow_import": False}, {"allow_import": "another_module"}, {"allow_import": ("os", "sys")}):
        with pytest.raises(UntrustedRunError, match=rf"{MODULE} .* Nothing was imported.* allow_import=True"):
            CALLS[name](sent, **allowed)
    assert not mark.exists()
    assert {path: path.read_bytes() for path in sent.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("allowed", [True, MODULE, ("os", MODULE)])
def test_what_is_allowed_is_imported_and_not_remembered(allowed: Any, sent: Path, mark: Path) -> None:
    load_agent(sent, allow_import=allowed)
    assert mark.exists()
    with pytest.raises(UntrustedRunError):
        load_agent(sent)


def test_curves_need_no_import(sent: Path, mark: Path) -> None:
    plot_runs(sent)
    assert not mark.exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"env_id": "GymV26Environment-v0", "env_kwargs": {"env_id": ENV_ID}},
        {"env_kwargs": {"deep": [{"down": f" {ENV_ID}"}]}},
        {"randomize": {"gain": f"choice('{MODULE}\\x3aX', 1)"}},
        {"env_id": f" {MODULE} :CartPole-v1"},
        {"env_id": f"{MODULE}:"},
    ],
)
def test_wherever_it_is_named(settings: dict[str, Any], finished: Path, tmp_path: Path, mark: Path) -> None:
    run = edited(Path(shutil.copytree(finished, tmp_path / "sent")), **settings)
    with pytest.raises(UntrustedRunError, match=MODULE):
        load_agent(run)
    assert not mark.exists()


def test_ordinary_arguments_name_no_module() -> None:
    config = changed("a2c", env_kwargs={"path": "/some/where: else", "text": "hello", "size": [1, 2]})
    assert modules_named(config) == ()
    assert modules_named(changed("a2c", randomize={"gain": choice(["a.b:C", 1])})) == ("a.b",)


def test_a_run_of_ones_own_is_trusted_where_it_is_as_it_is(tmp_path: Path, mark: Path) -> None:
    run = tmp_path / "own"
    train(changed("a2c", env_id=ENV_ID), run_dir=run, callback=stop_at([ROLLOUT]), progress=False)
    assert mark.exists()
    (tmp_path / "link").symlink_to(run)
    for path in (run, tmp_path / "link"):
        load_agent(path)
        resume(path, callback=stop_at([2 * ROLLOUT]), progress=False)
    (record,) = (tmp_path / "state" / "envfleet" / "trusted").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    shutil.copytree(run, tmp_path / "moved")
    with pytest.raises(UntrustedRunError):
        load_agent(tmp_path / "moved")
    edited(run, seed=1)
    with pytest.raises(UntrustedRunError):
        load_agent(run)


def test_without_a_place_to_remember_it_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").write_text("not a folder")
    run = tmp_path / "own"
    assert train(changed("a2c", env_id=ENV_ID), run_dir=run, progress=False).finished
    with pytest.raises(UntrustedRunError):
        load_agent(run)
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(UntrustedRunError):
        load_agent(run)


class TestCommandLine:
    def command(self, run: Path, *options: str) -> int:
        return main(["evaluate", str(run), "--episodes", "1", "--backend", "sync", *options])

    def test_without_a_terminal_it_is_refused(
        self, sent: Path, mark: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
        for argv in (["evaluate", str(sent)], ["showcase", str(sent)], ["train", "--resume", str(sent)]):
            assert main(argv) == 1
            assert "--allow-import on the command line" in capsys.readouterr().err
        assert main(["evaluate", str(sent), "--sweep", "gain=1,2"]) == 1
        assert not mark.exists()

    @pytest.mark.parametrize("options", [["--allow-import"], ["--allow-module", MODULE]])
    def test_it_can_be_allowed(self, options: list[str], sent: Path, mark: Path) -> None:
        assert self.command(sent, "--allow-module", "another") == 1
        assert not mark.exists()
        assert self.command(sent, *options) == 0
        assert mark.exists()

    @pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("\n", 1), ("n\n", 1), ("", 1)])
    def test_at_a_terminal_it_asks(
        self,
        answer: str,
        code: int,
        sent: Path,
        mark: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        assert self.command(sent) == code
        assert "[y/N]" in capsys.readouterr().err
        assert mark.exists() == (code == 0)
        if code == 0:
            load_agent(sent)
