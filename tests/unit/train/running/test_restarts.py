"""Environments that fail in a training that restarts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fragile_envs import FRAGILE, LENGTH, FragileEnv
from small_runs import outcome, stop_at

from envfleet import make_vec
from envfleet.testing import assert_same
from envfleet.train import A2CConfig, PPOConfig, Progress, SACConfig, begin, collect, read_metrics, resume, train
from envfleet.train.algorithms.learner import make_batch
from envfleet.train.algorithms.replay import ReplayBuffer
from envfleet.train.collecting import EpisodeTracker
from envfleet.train.first_ready import FirstReady

RESTART: dict[str, Any] = {"on_failure": "restart", "max_restarts": None}
SMALL: dict[str, Any] = {"num_envs": 2, "hidden_sizes": (8,), "rollout_steps": 16, "total_steps": 320}


def fleet(**env_kwargs: Any) -> Any:
    kwargs = {**RESTART, "autoreset_mode": "SameStep"}
    return make_vec(FRAGILE, 1, "sync", vector_kwargs=kwargs, raises=True, **env_kwargs)


def still(_: Any) -> Any:
    return np.zeros(1, np.int64)


class TestRollout:
    """What a row says in which an environment was restarted."""

    def test_it_is_no_transition_and_its_part_of_an_episode_is_no_episode(self) -> None:
        with fleet(crash_at=6) as envs:
            rollout = collect(envs, still, 16, begin(envs, seed=0))
        assert rollout.restarted is not None
        assert np.flatnonzero(rollout.restarted[:, 0]).tolist() == [5, 11]
        assert (rollout.valid[:, 0] == ~rollout.restarted[:, 0]).all()
        assert np.flatnonzero(rollout.truncated[:, 0]).tolist() == [5, 11]
        assert_same(rollout.final_observations, rollout.observations[[5, 11], 0])
        assert EpisodeTracker(1).finished(rollout) == []

    def test_the_next_episode_is_counted_from_its_own_start(self, tmp_path: Path) -> None:
        with fleet(crash_at=6, once=str(tmp_path / "once")) as envs:
            rollout = collect(envs, still, 16, begin(envs, seed=0), ["is_success", "words"])
        episodes = EpisodeTracker(1).finished(rollout)
        assert [(episode.episode_return, episode.length) for episode in episodes] == [(LENGTH, LENGTH)]
        assert episodes[0].infos["is_success"] == 1
        assert np.isnan(episodes[0].infos["words"])

    @pytest.mark.parametrize("rows", [1, 16])
    def test_first_ready_says_the_same(self, rows: int) -> None:
        with fleet(crash_at=6) as envs:
            collected = collect(envs, still, 16, begin(envs, seed=0))
        with make_vec(
            FRAGILE, 1, "sync", {**RESTART, "autoreset_mode": "SameStep", "batch_size": 1}, raises=True, crash_at=6
        ) as envs:
            ready = FirstReady(envs)
            ready.begin(0)
            policy: Any = lambda observations, ids: np.zeros(len(ids), np.int64)  # noqa: E731
            parts = [ready.first_results(policy) for _ in range(16)] if rows == 1 else [ready.steps_of_all(policy, 16)]
        assert_same(np.concatenate([part.valid for part in parts]), collected.valid)
        assert_same(np.concatenate([part.observations for part in parts]), collected.observations)
        assert_same(np.concatenate([part.final_observations for part in parts]), collected.final_observations)

    def test_the_step_before_is_worth_what_the_critic_says_of_the_last_observation(self) -> None:
        with fleet(crash_at=6) as envs:
            rollout = collect(envs, still, 10, begin(envs, seed=0))
        import torch

        def critic(observations: Any) -> Any:
            return 10 * observations[:, 0]  # ten times the step

        batch = make_batch(rollout, critic, torch.device("cpu"), reward_scale=1.0, gamma=0.5, lam=1.0)  # type: ignore[arg-type]
        assert len(batch) == 9
        # The fifth step leads to an observation worth 50, and nothing of the sixth, which never was, flows back.
        assert batch.returns[:5].tolist() == [1 + 0.5 * v for v in (*batch.returns[1:5].tolist(), 50.0)]

    def test_replay_links_no_episode_to_the_next(self) -> None:
        with fleet(crash_at=6) as envs:
            space, start = envs.single_observation_space, begin(envs, seed=0)
            buffer = ReplayBuffer(space, 1, 1, 100, 0)
            for _ in range(12):  # one row at a time, as an off-policy algorithm takes them
                rollout = collect(envs, still, 1, start)
                buffer.add(rollout)
                start = rollout.end
        assert len(buffer) == 10
        import torch

        drawn = buffer.sample(500, torch.device("cpu"))
        steps, following = drawn.observations[:, 0], drawn.next_observations[:, 0]  # type: ignore[index, call-overload]
        assert (following == steps + 1).all()


def test_a_restart_before_the_first_step_of_an_episode_leaves_the_buffer_alone() -> None:
    with fleet(crash_at=1) as envs:
        buffer = ReplayBuffer(envs.single_observation_space, 1, 1, 100, 0)
        before = {name: tensor.clone() for name, tensor in buffer.tensors().items()}
        buffer.add(collect(envs, still, 3, begin(envs, seed=0)))
        assert len(buffer) == 0
        assert buffer.tensors()["latest"].tolist() == before["latest"].tolist() == [-1]


class TestRun:
    """Whole runs on environments that end their processes."""

    @pytest.mark.parametrize(
        "config",
        [
            A2CConfig(FRAGILE, **SMALL, critic_updates=1),
            PPOConfig(FRAGILE, **SMALL, epochs=1),
            SACConfig(
                "envfleet-tests/FragileBox-v0", num_envs=2, hidden_sizes=(8,), total_steps=320, learning_starts=64
            ),
        ],
        ids=["a2c", "ppo", "sac"],
    )
    def test_restarts_are_counted_everywhere(self, config: Any, tmp_path: Path) -> None:
        import dataclasses

        config = dataclasses.replace(
            config, vector_kwargs={**RESTART, "num_workers": 2}, env_kwargs={"crash_at": 50, **config.env_kwargs}
        )
        seen: list[Progress] = []
        result = train(config, run_dir=tmp_path / "run", progress=False, callback=seen.append)  # type: ignore[arg-type]
        metrics = read_metrics(tmp_path / "run")
        assert result.finished
        assert result.restarts == metrics["restarts"][-1] == seen[-1].restarts > 4
        assert result.step == 320 - result.restarts
        assert np.nanmax(metrics["episode_length"]) == np.nanmin(metrics["episode_length"]) == LENGTH

    def test_without_restarts_the_metrics_have_no_such_column(self, tmp_path: Path) -> None:
        train(A2CConfig(FRAGILE, **SMALL, backend="sync"), run_dir=tmp_path / "run", progress=False)
        assert "restarts" not in read_metrics(tmp_path / "run")

    def test_failures_that_repeat_themselves_leave_resuming_exact(self, tmp_path: Path) -> None:
        config = A2CConfig(FRAGILE, **SMALL, vector_kwargs={**RESTART, "num_workers": 2}, env_kwargs={"crash_at": 50})
        train(config, run_dir=tmp_path / "whole", progress=False)
        train(config, run_dir=tmp_path / "parts", progress=False, callback=stop_at([157, 158]))
        resume(tmp_path / "parts", progress=False)
        assert_same(outcome(tmp_path / "parts"), outcome(tmp_path / "whole"))

    def test_what_cannot_be_repeated_is_said_and_begins_anew(self, tmp_path: Path) -> None:
        config = A2CConfig(
            FRAGILE,
            **SMALL,
            backend="process",
            vector_kwargs={**RESTART, "num_workers": 2},
            env_kwargs={"crash_at": 13, "once": str(tmp_path / "once")},
        )
        stopped = train(config, run_dir=tmp_path / "run", progress=False, callback=lambda progress: False)
        assert stopped.restarts == 1
        with pytest.warns(UserWarning, match=r"restarted 1 time after failures.*environment [01]\).*begin anew"):
            result = resume(tmp_path / "run", progress=False)
        assert result.finished
        assert set(read_metrics(tmp_path / "run")["episode_length"].tolist()) == {LENGTH}


class TestCallback:
    """What a callback does with the environments."""

    def test_it_asks_and_changes_them_and_that_survives_a_crash(self, tmp_path: Path) -> None:
        found: list[Any] = []

        def callback(progress: Progress) -> None:
            if progress.step < 100:
                progress.envs.set_attr("difficulty", [1.0, 2.0])
            found.append((progress.restarts, progress.envs.get_attr("difficulty"), progress.envs.parameters))

        config = A2CConfig(FRAGILE, **SMALL, vector_kwargs={**RESTART, "num_workers": 1}, env_kwargs={"crash_at": 40})
        result = train(config, run_dir=tmp_path / "run", progress=False, callback=callback)
        assert result.restarts > 2
        assert {(values, parameters) for _, values, parameters in found} == {((1.0, 2.0), None)}

    def test_a_resumed_run_has_what_was_set(self, tmp_path: Path) -> None:
        def callback(progress: Progress) -> bool:
            if progress.step == 96:
                progress.envs.set_attr("difficulty", 3.0)
            return progress.step != 160 or (tmp_path / "stopped").exists()

        config = A2CConfig(FRAGILE, **SMALL, backend="sync")
        (tmp_path / "stopped").touch()
        train(config, run_dir=tmp_path / "whole", progress=False, callback=callback)
        (tmp_path / "stopped").unlink()
        train(config, run_dir=tmp_path / "parts", progress=False, callback=callback)
        resume(tmp_path / "parts", progress=False)
        assert_same(outcome(tmp_path / "parts"), outcome(tmp_path / "whole"))
        assert read_metrics(tmp_path / "parts")["episode_return"][-1] == 4 * LENGTH

    def test_what_cannot_be_saved_is_said(self, tmp_path: Path) -> None:
        def callback(progress: Progress) -> bool:
            progress.envs.set_attr("mood", object())
            return False

        train(A2CConfig(FRAGILE, **SMALL, backend="sync"), run_dir=tmp_path / "run", progress=False, callback=callback)
        with pytest.warns(UserWarning, match="A callback had set mood to what JSON cannot hold"):
            resume(tmp_path / "run", progress=False)


def test_the_fragile_env_is_one_of_gymnasiums() -> None:
    assert FragileEnv().reset(seed=0)[0].shape == (3,)
