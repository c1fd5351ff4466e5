"""A run's life: evaluated on the way, stopped at a goal, extended, begun from another's weights, found again."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fragile_envs import FRAGILE, LENGTH
from small_runs import CONFIGS, EVERY, ROLLOUT, changed, outcome, stop_at

from envfleet.testing import assert_same
from envfleet.train import A2CConfig, PPOConfig, find_run, load_agent, read_metrics, resume, train
from envfleet.train.folders.checkpoint import load_checkpoint
from envfleet.train.folders.folder import RunFolder
from envfleet.train.folders.weights import load_tensors
from envfleet.train.running import run as run_module

EVALUATED: dict[str, Any] = {"eval_every": 4 * ROLLOUT, "eval_episodes": 3}


def without_evaluation(run: Path) -> dict[str, Any]:
    found = outcome(run)
    found["metrics"].pop("eval_return", None)
    return found


def actor_of(run: Path) -> dict[str, Any]:
    return {
        name: tensor.numpy() for name, tensor in load_tensors(run / "actor.safetensors", "actor weights")[0].items()
    }


class TestEvaluation:
    @EVERY
    def test_it_leaves_the_training_alone_and_is_resumed_exactly(self, algo: str, tmp_path: Path) -> None:
        train(CONFIGS[algo], run_dir=tmp_path / "plain", progress=False)
        config = changed(algo, **EVALUATED)
        train(config, run_dir=tmp_path / "evaluated", progress=False)
        assert_same(without_evaluation(tmp_path / "evaluated"), without_evaluation(tmp_path / "plain"))
        train(config, run_dir=tmp_path / "parts", progress=False, callback=stop_at([6 * ROLLOUT]))
        resume(tmp_path / "parts", progress=False)
        assert_same(outcome(tmp_path / "parts"), outcome(tmp_path / "evaluated"))
        assert_same(actor_of(tmp_path / "parts/best"), actor_of(tmp_path / "evaluated/best"))

    def test_the_best_weights_are_kept_with_their_score(self, tmp_path: Path) -> None:
        agents: dict[int, Any] = {}

        def keep(progress: Any) -> None:
            actor = progress.agent.actor.state_dict()
            agents[progress.step] = {name: tensor.clone().numpy() for name, tensor in actor.items()}

        result = train(changed("a2c", **EVALUATED), run_dir=tmp_path / "run", progress=False, callback=keep)
        metrics = read_metrics(tmp_path / "run")
        evaluated = np.isfinite(metrics["eval_return"])
        assert metrics["step"][evaluated].tolist() == [4 * ROLLOUT * n for n in range(1, 6)]
        score = json.loads((tmp_path / "run/best/evaluation.json").read_text())
        assert score["mean_return"] == np.nanmax(metrics["eval_return"]) == result.best_return
        assert score["step"] == metrics["step"][np.nanargmax(metrics["eval_return"])]
        assert score["episodes"] == 3
        best = load_agent(tmp_path / "run/best")
        assert_same({name: tensor.numpy() for name, tensor in best.actor.state_dict().items()}, agents[score["step"]])

    def test_best_weights_cannot_be_resumed(self, tmp_path: Path) -> None:
        train(changed("a2c", **EVALUATED), run_dir=tmp_path / "run", progress=False)
        with pytest.raises(FileNotFoundError, match="the run cannot go on"):
            resume(tmp_path / "run/best", progress=False)

    def test_episodes_are_needed(self) -> None:
        with pytest.raises(ValueError, match="eval_every=100 needs eval_episodes of at least 1, got 0"):
            A2CConfig(FRAGILE, eval_every=100, eval_episodes=0)


class TestGoal:
    CONFIG = A2CConfig(
        FRAGILE, num_envs=2, backend="sync", rollout_steps=16, hidden_sizes=(8,), critic_updates=1, total_steps=4096
    )

    def test_the_mean_of_a_hundred_training_episodes_ends_it(self, tmp_path: Path) -> None:
        config = dataclasses.replace(self.CONFIG, stop_at_return=float(LENGTH))
        result = train(config, run_dir=tmp_path / "run", progress=False)
        assert (result.finished, result.reached_goal) == (True, True)
        assert result.step == 800  # the first rollout of 32 with which a hundred episodes of eight steps are over
        again = resume(tmp_path / "run", progress=False)
        assert (again.step, again.reached_goal, again.finished) == (800, True, True)

    def test_an_evaluation_ends_it_if_there_are_any(self, tmp_path: Path) -> None:
        config = dataclasses.replace(self.CONFIG, stop_at_return=float(LENGTH), eval_every=64, eval_episodes=2)
        assert train(config, run_dir=tmp_path / "run", progress=False).step == 64

    def test_a_goal_out_of_reach_changes_nothing(self, tmp_path: Path) -> None:
        config = dataclasses.replace(self.CONFIG, stop_at_return=1e6, total_steps=1024)
        result = train(config, run_dir=tmp_path / "run", progress=False)
        assert (result.step, result.finished, result.reached_goal) == (1024, True, False)


class TestExtension:
    @EVERY
    def test_a_finished_run_goes_on_with_the_longer_runs_schedule(self, algo: str, tmp_path: Path) -> None:
        run, longer = tmp_path / "run", 30 * ROLLOUT
        train(CONFIGS[algo], run_dir=run, progress=False)
        result = resume(run, total_steps=longer, progress=False)
        assert (result.step, result.finished) == (longer, True)
        assert RunFolder(run).read_config()[0].total_steps == longer
        rates = read_metrics(run).get("learning_rate")
        if rates is not None:  # 19 of 20 rollouts were done, then 20 of 30
            assert np.allclose(rates[19:21] / rates[0], [1 / 20, 10 / 30])

    def test_an_extension_can_be_stopped_too(self, tmp_path: Path) -> None:
        for name in ("whole", "parts"):
            train(CONFIGS["ppo"], run_dir=tmp_path / name, progress=False)
        resume(tmp_path / "whole", total_steps=30 * ROLLOUT, progress=False)
        resume(tmp_path / "parts", total_steps=30 * ROLLOUT, progress=False, callback=stop_at([25 * ROLLOUT]))
        resume(tmp_path / "parts", progress=False)
        assert_same(outcome(tmp_path / "parts"), outcome(tmp_path / "whole"))

    def test_fewer_steps_than_there_were_are_refused(self, tmp_path: Path) -> None:
        train(CONFIGS["a2c"], run_dir=tmp_path / "run", progress=False)
        config = (tmp_path / "run/config.json").read_bytes()
        with pytest.raises(ValueError, match=r"total_steps=320 is less than the 640 steps.*altogether"):
            resume(tmp_path / "run", total_steps=10 * ROLLOUT, progress=False)
        assert (tmp_path / "run/config.json").read_bytes() == config


class TestInitialWeights:
    @EVERY
    def test_a_run_starts_from_anothers_weights(
        self, algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        train(CONFIGS[algo], run_dir=tmp_path / "first", progress=False)
        first = load_checkpoint(RunFolder(tmp_path / "first"))
        starts: list[Any] = []
        save = run_module._save

        def look_and_save(training: Any, learner: Any, folder: Any) -> None:
            starts.append(_copied(learner))
            save(training, learner, folder)

        monkeypatch.setattr(run_module, "_save", look_and_save)
        config = dataclasses.replace(CONFIGS[algo], seed=5)
        train(config, run_dir=tmp_path / "second", init_from=tmp_path / "first", progress=False)
        assert first is not None
        for name in ("actor",) if algo == "dqn" else ("actor", "critic"):
            assert_same(starts[0][name], {key: value.numpy() for key, value in first.group(f"module/{name}").items()})
        assert json.loads((tmp_path / "second/config.json").read_text())["init_from"] == str(tmp_path / "first")

    @pytest.mark.parametrize(
        ("other", "expected"),
        [
            (changed("a2c", hidden_sizes=(9,)), r"hidden_sizes=\(8,\) there and \(9,\) here"),
            (changed("a2c", activation="relu"), "activation='tanh' there and 'relu' here"),
            (A2CConfig("CartPole-v1", hidden_sizes=(8,)), "A run cannot start from these weights.*has shape"),
            (
                changed("sac", activation="tanh", normalize_observations=True),
                "A run cannot start from these weights.*A2C and PPO count as one",
            ),
        ],
        ids=["layers", "activation", "spaces", "algorithm"],
    )
    def test_what_does_not_fit_is_refused_before_there_is_a_folder(
        self, other: Any, expected: str, tmp_path: Path
    ) -> None:
        train(CONFIGS["a2c"], run_dir=tmp_path / "first", progress=False)
        with pytest.raises(ValueError, match=expected):
            train(other, run_dir=tmp_path / "second", init_from=tmp_path / "first", progress=False)
        assert not (tmp_path / "second").exists()

    def test_weights_without_a_critic_are_not_enough_for_an_algorithm_that_has_one(self, tmp_path: Path) -> None:
        config = changed("dqn", activation="tanh")
        train(config, run_dir=tmp_path / "first", progress=False)
        other = changed("a2c", normalize_observations=False)
        with pytest.raises(ValueError, match=r"cannot start from these weights.*first has no critic"):
            train(other, run_dir=tmp_path / "second", init_from=tmp_path / "first", progress=False)
        assert not (tmp_path / "second").exists()

    def test_a2c_and_ppo_share_weights(self, tmp_path: Path) -> None:
        train(CONFIGS["a2c"], run_dir=tmp_path / "first", progress=False)
        result = train(CONFIGS["ppo"], run_dir=tmp_path / "second", init_from=tmp_path / "first", progress=False)
        assert result.finished


def _copied(learner: Any) -> dict[str, Any]:
    return {
        name: {key: value.clone().numpy() for key, value in module.state_dict().items()}
        for name, module in learner.modules.items()
    }


class TestInfoMetrics:
    def test_success_is_logged_by_itself_and_others_by_name(self, tmp_path: Path) -> None:
        def harder(progress: Any) -> None:
            progress.envs.set_attr("difficulty", [0.0, 1.0])

        config = A2CConfig(
            FRAGILE, num_envs=2, backend="sync", rollout_steps=32, total_steps=256, info_metrics=("difficulty", "words")
        )
        train(config, run_dir=tmp_path / "run", progress=False, callback=harder)
        metrics = read_metrics(tmp_path / "run")
        assert metrics["is_success"].tolist() == [1.0, 0.5, 0.5, 0.5]
        assert metrics["difficulty"].tolist() == [0.0, 0.5, 0.5, 0.5]
        assert "words" not in metrics

    def test_environments_without_it_have_no_such_column(self, tmp_path: Path) -> None:
        train(CONFIGS["a2c"], run_dir=tmp_path / "run", progress=False)
        assert "is_success" not in read_metrics(tmp_path / "run")


def test_whole_rollouts_are_announced_where_they_are_fewer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(changed("ppo", total_steps=70), run_dir=tmp_path / "run")
    expected = "steps: 64 of the 70 asked for, in 2 whole rollouts of 32 (2 environments x 16)\n"
    assert expected in capsys.readouterr().out
    train(changed("ppo", total_steps=64), run_dir=tmp_path / "other")
    assert "asked for" not in capsys.readouterr().out


class TestVectorKwargs:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"autoreset_mode": "NextStep"}, "cannot set autoreset_mode: training needs"),
            ({"copy": True}, "cannot set copy"),
            ({"batch_size": 2}, "cannot set batch_size: use the setting first_ready"),
            ({"step_timeot": 2}, "has no 'step_timeot' .did you mean 'step_timeout'"),
            ({"context": object()}, "what JSON can hold"),
            ([], "what JSON can hold"),
        ],
    )
    def test_what_cannot_be_is_refused(self, given: Any, expected: str) -> None:
        with pytest.raises(ValueError, match=expected):
            PPOConfig("CartPole-v1", vector_kwargs=given)


class TestFinding:
    def run_at(self, path: Path, time: int) -> Path:
        path.mkdir(parents=True)
        (path / "config.json").write_text('{"format": 1, "algo": "a2c", "config": {}}')
        os.utime(path / "config.json", (time, time))
        return path

    def test_a_folder_of_runs_means_the_newest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        self.run_at(Path("runs/A/one"), 100)
        newest = self.run_at(Path("runs/B/two"), 300)
        self.run_at(Path("runs/A/three"), 200)
        self.run_at(newest / "best", 400)
        for path in ("runs", "latest", "runs/B", "runs/B/two"):
            assert find_run(path) == newest
        assert find_run("runs/A") == Path("runs/A/three")
        (newest / "metrics.csv").touch()
        os.utime(Path("runs/A/one/config.json"), (2**31, 2**31))
        assert find_run("latest") == Path("runs/A/one")

    def test_what_is_ambiguous_or_missing_is_said(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(FileNotFoundError, match="there is no latest run"):
            find_run("latest")
        with pytest.raises(FileNotFoundError, match="does not exist"):
            find_run("elsewhere")
        Path("empty").mkdir()
        with pytest.raises(FileNotFoundError, match="there is none in it"):
            find_run("empty")
        self.run_at(Path("runs/A/one"), 100)
        self.run_at(Path("runs/A/two"), 100)
        with pytest.raises(ValueError, match="equally new"):
            find_run("runs")
        Path("runs/A/seeds.json").write_text('{"seeds": [0, 1]}')
        with pytest.raises(ValueError, match="one per seed: give one of one, two"):
            find_run("runs/A")
