"""`envfleet tune`: its arguments, its table, its JSON, and what it says when something is wrong."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from command_line import Run, flat

import envfleet.tuning
from envfleet.tuning import Candidate, Setup, TuningResult

QUICK = ["--num-envs", "2", "--seconds", "2"]
RESULT = TuningResult(
    env='"A-v0"',
    env_kwargs={"a_long_name": "and a value that is much longer than any terminal is wide " * 3},
    cores=2,
    waits=False,
    bare_speeds=(100.0,),
    candidates=(
        Candidate(Setup(8, "sync"), (90.0, 100.0, 110.0), (0.1, 0.1, 0.1)),
        Candidate(Setup(8, "process", {"num_workers": 2}), (1234.0, 1235.0, 1236.0), (0.2, 0.2, 0.2)),
        Candidate(Setup(8, "native"), (), (), "ValueError: [it] is not to be had."),
    ),
    seconds=9.0,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `tune` was asked for; nothing is measured."""
    calls: list[Any] = []

    def fake(*args: Any, progress: Any, **kwargs: Any) -> TuningResult:
        calls.append((args, kwargs))
        return RESULT

    monkeypatch.setattr(envfleet.tuning, "tune", fake)
    return calls


def test_a_real_environment_as_a_table(envfleet: Run) -> None:
    code, output, errors = envfleet("tune", "CartPole-v1", *QUICK, "--no-first-ready")
    assert code == 0
    assert not errors
    lines = output.splitlines()
    assert lines[0].startswith("2 x CartPole-v1 on ")
    assert lines[2].split()[:4] == ["what", "runs", "them", "steps/s"]
    assert len([line for line in lines if line.startswith("* ")]) == 1
    assert 'To paste:\n    envs = envfleet.make_vec("CartPole-v1", 2, backend="' in output
    assert "ready" not in "\n".join(lines[3:])


def test_json_is_one_line(envfleet: Run) -> None:
    code, output, errors = envfleet("tune", "CartPole-v1", *QUICK, "--json", "--env-kwargs", "max_episode_steps=5")
    assert code == 0
    assert not errors
    assert output.count("\n") == 1
    found = json.loads(output)
    assert found["env_kwargs"] == {"max_episode_steps": 5}
    assert found["candidates"][0]["backend"] == "sync"
    assert found["candidates"][found["best"]]["steps_per_second"] > 0
    assert any(candidate["name"].endswith("first 1 ready") for candidate in found["candidates"])


@pytest.mark.parametrize(
    ("argv", "args", "kwargs"),
    [
        ([], ("A-v0", None), {"seconds": 45.0, "first_ready": True}),
        (["--num-envs", "64"], ("A-v0", (64,)), {"seconds": 45.0, "first_ready": True}),
        (["--num-envs", "8", "16"], ("A-v0", (8, 16)), {"seconds": 45.0, "first_ready": True}),
        (["--seconds", "5", "--no-first-ready"], ("A-v0", None), {"seconds": 5.0, "first_ready": False}),
        (
            ["--env-kwargs", "gravity=-5", "name=x", "--seconds=7"],
            ("A-v0", None),
            {"seconds": 7.0, "first_ready": True, "gravity": -5, "name": "x"},
        ),
    ],
)
def test_settings_are_passed_on(envfleet: Run, asked: list[Any], argv: list[str], args: Any, kwargs: Any) -> None:
    assert envfleet("tune", "A-v0", *argv)[0] == 0
    assert asked == [(args, kwargs)]


@pytest.mark.usefixtures("asked")
def test_in_a_terminal_the_table_is_drawn_and_code_is_never_broken(
    envfleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    monkeypatch.setenv("COLUMNS", "100")
    code, output, _ = envfleet("tune", "A-v0")
    assert code == 0
    assert "┃" in output
    assert "\x1b[1;32m" in output  # the winner
    assert f"\n    {RESULT.code}\n" in output
    assert "[it] is not to be had" in output


@pytest.mark.usefixtures("asked")
def test_elsewhere_the_table_is_plain(envfleet: Run) -> None:
    _, output, _ = envfleet("tune", "A-v0")
    assert output == f"{RESULT}\n"
    assert output.isascii()


def test_help_lists_the_settings(envfleet: Run) -> None:
    code, output, _ = envfleet("tune", "--help")
    assert code == 0
    text = flat(output)
    for flag in ("ENV", "--num-envs", "--seconds", "--env-kwargs", "--first-ready, --no-first-ready", "--json"):
        assert flag in text
    assert "(default: 8 16 64)" in text


@pytest.mark.parametrize(
    ("argv", "code", "expected"),
    [
        (["CartPol-v1"], 1, "There is no environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        (["no_such_module:X-v0"], 1, "There is no module 'no_such_module' to import"),
        (["CartPole-v1", "--num-envs", "0"], 1, "num_envs must be a positive integer, got 0"),
        (["CartPole-v1", "--seconds", "-1"], 1, "seconds must be a positive number, got -1.0"),
        (["CartPole-v1", "--env-kwargs", "graviti=3"], 1, "unexpected keyword argument 'graviti'"),
        (["CartPole-v1", "--env-kwargs", "seconds=3"], 2, "for tune's own setting write --seconds"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_sentence(
    envfleet: Run, argv: list[str], code: int, expected: str
) -> None:
    found, output, errors = envfleet("tune", *argv)
    assert (found, output) == (code, "")
    assert errors.startswith("envfleet: ")
    assert expected in errors
    assert errors.count("\n") == 1
