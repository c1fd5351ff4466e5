"""Sweeps: what is suggested, what is ended early, and what survives kills and interruptions."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from selection import left_to_test_all
from small_runs import outcome
from sweep_envs import Deadly, TwoLevers

import envfleet
from envfleet import choice, loguniform, normal, uniform
from envfleet.train import (
    A2CConfig,
    SACConfig,
    SweepResult,
    default_search_space,
    load_agent,
    plot_importance,
    read_sweep,
    resume,
    resume_sweep,
    sweep,
)
from envfleet.train.algorithms.registry import ALGORITHMS

CONFIG = A2CConfig(
    TwoLevers,
    num_envs=2,
    backend="sync",
    hidden_sizes=(8,),
    rollout_steps=8,
    critic_updates=1,
    total_steps=160,
    eval_every=32,
    eval_episodes=2,
    actor_lr=0.05,
    normalize_observations=False,
    anneal=False,
)
SEARCH = {"actor_lr": choice([1e-9, 0.05]), "gamma": uniform(0.9, 0.99), "critic_updates": uniform(1, 3)}
QUIET: dict[str, Any] = {"loggers": (), "progress": False}


def found(result: SweepResult) -> list[tuple[Any, ...]]:
    """All that must be the same in two sweeps that are to be the same."""
    return [(trial.number, trial.state, trial.value, dict(trial.settings)) for trial in result.trials]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    """A sweep that nothing has interrupted."""
    return sweep(CONFIG, SEARCH, trials=9, sweep_dir=tmp_path_factory.mktemp("whole") / "sweep", **QUIET)


def test_the_first_trial_has_the_settings_of_the_configuration_where_they_are_searched(whole: SweepResult) -> None:
    settings = whole.trials[0].settings
    assert (settings["actor_lr"], settings["critic_updates"]) == (0.05, 1)
    assert 0.9 <= settings["gamma"] <= 0.99  # its own 0.995 is not searched


def test_ranges_of_whole_numbers_give_whole_numbers(whole: SweepResult) -> None:
    assert {type(trial.settings["critic_updates"]) for trial in whole.trials} == {int}
    assert {trial.settings["critic_updates"] for trial in whole.trials} <= {1, 2, 3}


def test_trials_that_do_badly_are_ended_early(whole: SweepResult) -> None:
    pruned = [trial for trial in whole.trials if trial.state == "pruned"]
    assert pruned
    for trial in pruned:
        assert trial.settings["actor_lr"] == 1e-9
        assert trial.number >= 4  # the first ones run to their end, to be compared with
        assert load_agent(trial.run_dir, env=TwoLevers).config.total_steps == 160
        steps = envfleet.train.read_metrics(trial.run_dir)["step"]
        assert 64 <= steps[-1] < 160
    assert whole.best is not None
    assert whole.best.value == 8.0


def test_without_a_pruner_every_trial_runs_to_its_end(whole: SweepResult, tmp_path: Path) -> None:
    result = sweep(CONFIG, SEARCH, trials=6, pruner="none", sweep_dir=tmp_path / "sweep", **QUIET)
    assert {trial.state for trial in result.trials} == {"complete"}
    assert {trial.value for trial in result.trials} == {0.0, 8.0}


def test_successive_halving_ends_trials_too(tmp_path: Path) -> None:
    result = sweep(CONFIG, SEARCH, trials=6, pruner="halving", sweep_dir=tmp_path / "sweep", **QUIET)
    assert "pruned" in {trial.state for trial in result.trials}


def test_trials_are_ordinary_runs_that_can_be_gone_on_with(whole: SweepResult) -> None:
    pruned = next(trial for trial in whole.trials if trial.state == "pruned")
    copied = json.loads((pruned.run_dir / "config.json").read_text())["config"]
    assert {name: copied[name] for name in pruned.settings} == dict(pruned.settings)
    result = resume(pruned.run_dir, env=TwoLevers, progress=False, loggers=())
    assert (result.finished, result.step) == (True, 160)


def test_the_best_configuration_gives_the_best_trial_again(whole: SweepResult, tmp_path: Path) -> None:
    assert whole.best is not None
    config = whole.best_config
    assert config == dataclasses.replace(CONFIG, **whole.best.settings)
    again = envfleet.train.train(config, run_dir=tmp_path / "run", progress=False, loggers=())
    assert again.best_return is not None
    ours, theirs = outcome(tmp_path / "run"), outcome(whole.best.run_dir)
    assert all((ours["tensors"][name] == theirs["tensors"][name]).all() for name in theirs["tensors"])


def test_the_same_seed_gives_the_same_suggestions(whole: SweepResult, tmp_path: Path) -> None:
    again = sweep(CONFIG, SEARCH, trials=3, sweep_dir=tmp_path / "again", **QUIET)
    assert found(again) == found(whole)[:3]
    other = sweep(dataclasses.replace(CONFIG, seed=1), SEARCH, trials=2, sweep_dir=tmp_path / "other", **QUIET)
    assert other.trials[1].settings != whole.trials[1].settings


def test_a_sweep_is_extended(whole: SweepResult, tmp_path: Path) -> None:
    first = sweep(CONFIG, SEARCH, trials=2, sweep_dir=tmp_path / "sweep", **QUIET)
    assert first.finished
    more = resume_sweep(tmp_path / "sweep", env=TwoLevers, trials=4, **QUIET)
    assert found(more) == found(whole)[:4]
    again = resume_sweep(tmp_path / "sweep", env=TwoLevers, **QUIET)
    assert found(again) == found(more)


# -- kills and interruptions ---------------------------------------------------------------------------


def script(config: str, sweep_dir: Path, trials: int) -> str:
    return (
        "import test_sweep as t\nfrom envfleet.train import *\n"
        f"sweep({config}, t.SEARCH, trials={trials}, sweep_dir={str(sweep_dir)!r}, loggers=())"
    )


def run_apart(code: str) -> subprocess.Popen[bytes]:
    paths = [path for path in sys.path if path]
    return subprocess.Popen([sys.executable, "-c", f"import sys\nsys.path[:0] = {paths}\n{code}"])


def test_a_killed_sweep_goes_on_as_if_it_had_not_been_killed(whole: SweepResult, tmp_path: Path) -> None:
    """Killed by SIGKILL in the middle of the third trial, which then goes on."""
    deadly = {"step": 2 * (160 + 5 * 16) + 100, "marker": str(tmp_path / "killed")}
    config = f"t.dataclasses.replace(t.CONFIG, env_id=t.Deadly, env_kwargs={deadly!r})"
    process = run_apart(script(config, tmp_path / "sweep", 4))
    assert process.wait(100) == -signal.SIGKILL
    so_far = read_sweep(tmp_path / "sweep")
    assert [trial.state for trial in so_far.trials] == ["complete", "complete", "interrupted"]
    assert not so_far.finished
    result = resume_sweep(tmp_path / "sweep", env=Deadly, **QUIET)
    assert found(result) == found(whole)[:4]
    assert result.finished
    assert {trial.state.name for trial in study_of(result).trials} <= {"COMPLETE", "PRUNED"}


def study_of(result: SweepResult) -> optuna.Study:
    """As a user of Optuna opens it."""
    return optuna.load_study(study_name="sweep", storage=f"sqlite:///{result.sweep_dir / 'study.db'}")


@pytest.mark.parametrize("call", [2, 5])
def test_a_sweep_that_ends_while_it_suggests_goes_on_with_the_same_suggestions(
    whole: SweepResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    storage = optuna.storages._CachedStorage  # which Optuna puts in front of a database
    write, calls = storage.set_trial_param, iter(range(1, 100))

    def failing(self: Any, *args: Any) -> None:
        if next(calls) == 3 + call:  # after the three of the first trial
            raise KeyboardInterrupt
        write(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "set_trial_param", failing)
        with pytest.raises(KeyboardInterrupt):
            sweep(CONFIG, SEARCH, trials=3, sweep_dir=tmp_path / "sweep", **QUIET)
    result = resume_sweep(tmp_path / "sweep", env=TwoLevers, **QUIET)
    assert found(result) == found(whole)[:3]


def test_ctrl_c_saves_the_trial_under_way(whole: SweepResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, calls = TwoLevers.step, iter(range(1, 10**6))

    def pressing(self: TwoLevers, action: Any) -> Any:
        if next(calls) == 300:
            signal.raise_signal(signal.SIGINT)
        return step(self, action)

    with monkeypatch.context() as patch:
        patch.setattr(TwoLevers, "step", pressing)
        stopped = sweep(CONFIG, SEARCH, trials=3, sweep_dir=tmp_path / "sweep", **QUIET)
    assert (stopped.stopped_by, stopped.finished) == (signal.SIGINT, False)
    assert [trial.state for trial in stopped.trials] == ["complete", "interrupted"]
    result = resume_sweep(tmp_path / "sweep", env=TwoLevers, **QUIET)
    assert found(result) == found(whole)[:3]


@left_to_test_all()
@pytest.mark.timeout(1800)
def test_sweeps_that_are_killed_all_the_time_lose_no_finished_trial(whole: SweepResult, tmp_path: Path) -> None:
    """Killed from outside at whatever they are doing, as a cluster does, until they come to their end.

    A process is killed once it has computed for so long after another sweep, for which it has imported torch and all of
    Optuna's database: these alone take longer than a trial.
    """
    folder, known, kills = tmp_path / "sweep", [], 0
    for number in range(1, 60):
        again = f"t.resume_sweep({str(folder)!r}, env=t.TwoLevers, loggers=())"
        first = f"t.sweep(t.CONFIG, t.SEARCH, trials=9, sweep_dir={str(folder)!r}, loggers=())"
        work = again if (folder / "sweep.json").exists() else first
        ready = tmp_path / f"ready {number}"
        other = f"t.sweep(t.CONFIG, t.SEARCH, trials=1, sweep_dir={str(tmp_path / f'other {number}')!r}, loggers=())"
        process = run_apart(f"import test_sweep as t\n{other}\nt.Path({str(ready)!r}).touch()\n{work}")
        while not ready.exists():
            assert process.poll() is None
            time.sleep(0.01)
        begun = processor_seconds(process.pid)
        while process.poll() is None and processor_seconds(process.pid) < begun + 0.1 * number:
            time.sleep(0.005)
        process.kill()
        assert process.wait() in (0, -signal.SIGKILL)
        kills += process.returncode != 0
        if (folder / "study.db").exists() and (folder / "sweep.json").exists():
            now = [trial for trial in found(read_sweep(folder)) if trial[1] != "interrupted"]
            assert now[: len(known)] == known
            known = now
        if process.returncode == 0:
            break
    assert kills > 2
    assert known == found(whole)


def processor_seconds(pid: int) -> float:
    """How long a child has computed, also one that has ended and was not waited for."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


# -- several at once ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(300)  # three processes import torch
def test_several_trials_at_once_and_a_process_that_dies(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, env_id=Deadly, env_kwargs={"step": 100, "marker": str(tmp_path / "killed")})
    result = sweep(config, SEARCH, trials=4, parallel=2, sweep_dir=tmp_path / "sweep", **QUIET)
    assert (tmp_path / "killed").exists()
    assert result.finished
    assert [trial.number for trial in result.trials] == [0, 1, 2, 3]
    assert {trial.state for trial in result.trials} == {"complete"}
    assert {trial.value for trial in result.trials} <= {0.0, 8.0}
    assert result.trials[0].value == 8.0


# -- what goes wrong ------------------------------------------------------------------------------------


class Broken(TwoLevers):
    """Cannot be made."""

    def __init__(self) -> None:
        raise OSError("the simulator is not installed")


class Failing(TwoLevers):
    """Raises in its first step."""

    def step(self, action: Any) -> Any:
        raise OSError("the simulator fell over")


def test_what_no_trial_could_do_is_raised_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, env_id=Broken)
    with pytest.raises(envfleet.EnvRaisedError, match="the simulator is not installed"):
        sweep(config, SEARCH, trials=3, sweep_dir=tmp_path / "sweep", **QUIET)
    assert not (tmp_path / "sweep").exists()


def test_trials_that_fail_are_noted_and_three_in_a_row_are_enough(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, env_id=Failing)
    with pytest.raises(envfleet.EnvRaisedError, match="the simulator fell over"):
        sweep(config, SEARCH, trials=9, sweep_dir=tmp_path / "sweep", **QUIET)
    trials = read_sweep(tmp_path / "sweep").trials
    assert [trial.state for trial in trials] == ["failed"] * 3
    assert all("the simulator fell over" in str(trial.error) for trial in trials)


@pytest.mark.parametrize(
    ("search", "says"),
    [
        ({}, "at least one setting"),
        ({"actor_rl": uniform(0, 1)}, r"A2CConfig has no setting 'actor_rl' \(did you mean 'actor_lr'\?\)"),
        ({"seed": choice([1, 2])}, "seed must be the same for all trials"),
        ({"total_steps": choice([100, 200])}, "total_steps must be the same.*cannot be compared"),
        ({"actor_lr": normal(0.1, 0.1)}, r"actor_lr needs uniform\(low, high\), loguniform.*got normal"),
        ({"actor_lr": 0.1}, "actor_lr needs uniform"),
        ({"actor_lr": uniform(-1, 1)}, r"actor_lr must be a number greater than 0, got -1\.0"),
        ({"rollout_steps": uniform(1.5, 4)}, "rollout_steps is a whole number"),
        ({"rollout_steps": choice([8, 2.5])}, r"rollout_steps must be an integer of at least 1, got 2\.5"),
        ({"hidden_sizes": choice([64, 128])}, "hidden_sizes must be a tuple of integers"),
    ],
)
def test_what_cannot_be_searched_is_refused(search: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        sweep(CONFIG, search, sweep_dir=tmp_path / "sweep", **QUIET)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"trials": 0}, "trials must be an integer of at least 1"),
        ({"parallel": 0}, "parallel must be an integer of at least 1"),
        ({"pruner": "mean"}, "pruner must be median, halving or none"),
        ({"loggers": ("tensorbord",)}, "tensorbord"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        sweep(CONFIG, SEARCH, **{"sweep_dir": tmp_path / "sweep", **QUIET, **given})
    assert not (tmp_path / "sweep").exists()


def test_a_folder_with_a_sweep_is_refused_and_one_without_too(whole: SweepResult, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match=r"holds a sweep already: go on with it \(envfleet sweep --resume"):
        sweep(CONFIG, SEARCH, sweep_dir=whole.sweep_dir, **QUIET)
    with pytest.raises(FileNotFoundError, match=r"not the folder of a sweep: it has no sweep\.json"):
        resume_sweep(tmp_path, **QUIET)


def test_a_sweep_from_elsewhere_imports_nothing_unless_it_may(tmp_path: Path) -> None:
    sweep(CONFIG, SEARCH, trials=1, sweep_dir=tmp_path / "sweep", **QUIET)
    (tmp_path / "sweep").rename(tmp_path / "sent")
    with pytest.raises(envfleet.UntrustedRunError, match=r"its configuration names a module.*sweep_envs"):
        resume_sweep(tmp_path / "sent", trials=2, **QUIET)
    assert resume_sweep(tmp_path / "sent", trials=2, allow_import=True, **QUIET).finished


def test_a_damaged_plan_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"format": 1}')
    with pytest.raises(envfleet.DamagedRunError, match=r"sweep\.json is damaged: it lacks algo, config"):
        resume_sweep(tmp_path, **QUIET)


def test_without_optuna_the_line_to_install_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ModuleNotFoundError, match=r'optuna is needed.*\n    pip install "envfleet\[optuna\]"'):
        sweep(CONFIG, SEARCH, sweep_dir=tmp_path / "sweep", **QUIET)


# -- what it finds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", list(ALGORITHMS))
def test_every_algorithm_has_a_search_space_that_its_configuration_accepts(algo: str) -> None:
    from envfleet.train.sweeping.space import check_search

    config = ALGORITHMS[algo].config("CartPole-v1")
    space = default_search_space(config)
    step_sizes = {"learning_rate"} if algo == "dqn" else {"actor_lr", "critic_lr"}
    assert {*step_sizes, "gamma", "hidden_sizes"} <= space.keys()
    check_search(config, space)


def test_search_spaces_differ_by_algorithm() -> None:
    assert "rollout_steps" in default_search_space(CONFIG)
    assert default_search_space(SACConfig("Pendulum-v1")).keys().isdisjoint({"rollout_steps", "entropy_coef"})
    assert default_search_space(CONFIG)["actor_lr"] == loguniform(1e-4, 1e-2)


def test_the_importance_is_drawn(whole: SweepResult, tmp_path: Path) -> None:
    assert whole.importance.keys() == SEARCH.keys()
    assert list(whole.importance.values()) == sorted(whole.importance.values(), reverse=True)
    assert sum(whole.importance.values()) == pytest.approx(1)
    picture = plot_importance(whole.sweep_dir, tmp_path / "importance.svg")
    text = picture.read_text()
    assert all(name in text for name in ("actor_lr", "critic_updates", "importance (share)"))
    assert "matplotlib.pyplot" not in sys.modules


def test_too_few_trials_have_no_importance(tmp_path: Path) -> None:
    result = sweep(CONFIG, SEARCH, trials=1, sweep_dir=tmp_path / "sweep", **QUIET)
    assert result.importance == {}
    with pytest.raises(ValueError, match=r"1 trials of .* too few to tell"):
        plot_importance(tmp_path / "sweep")


def test_the_best_trials_are_shown(whole: SweepResult) -> None:
    first, headline, best, *_ = str(whole).splitlines()
    assert first.startswith("9 trials: ")
    assert headline.split() == ["trial", "return", *whole.importance]
    assert best.split()[1] == "8.000"
    assert "0.05" in best.split()
    assert "<td>0.05</td>" in whole._repr_html_()
