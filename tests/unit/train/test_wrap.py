"""`train(config, wrap=...)`: vector wrappers of one's own around the environments of a run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import VectorWrapper
from selection import left_to_test_all
from small_runs import CONFIGS, EVERY, ROLLOUT, changed, outcome, stop_at

from envfleet import make_vec
from envfleet.errors import DamagedRunError
from envfleet.train import PPOConfig, Progress, TrainConfig, evaluate, load_agent, resume, showcase, train
from envfleet.train.folders.folder import RunFolder
from envfleet.train.folders.weights import save_tensors
from envfleet.train.wrapper_state import packed, read_state, unpacked
from envfleet.train.wrapping import measured
from envfleet.wrappers import FrameStackObservation, NormalizeObservation, NormalizeReward


class Counting(VectorWrapper):  # type: ignore[type-arg]
    """Adds to every observation a number that grows with each step, and cannot be frozen; its state is odd."""

    def __init__(self, envs: Any) -> None:
        super().__init__(envs)
        self.steps = 0

    def reset(self, **given: Any) -> Any:
        return self.env.reset(**given)

    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = self.env.step(actions)
        self.steps += 1
        return observations, rewards + self.steps % 7, *rest

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "nested": {"pair": (np.float32(0.5), [None, "text", True])}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pair, (nothing, text, yes) = state["nested"]["pair"]
        assert (pair, nothing, text, yes) == (0.5, None, "text", True)
        assert isinstance(pair, np.float32)
        self.steps = state["steps"]


def normalised(envs: Any) -> Any:
    return NormalizeReward(FrameStackObservation(NormalizeObservation(envs), 3), gamma=0.9)


def gymnasiums(envs: Any) -> Any:
    return gym.wrappers.vector.NormalizeReward(envs)


WRAPS: dict[str, Callable[[Any], Any]] = {"normalised": normalised, "gymnasiums": gymnasiums, "counting": Counting}


def config_for(algo: str, **changes: Any) -> TrainConfig:
    """Environments that give numbers, a stream of 100 steps so that a run has several."""
    return changed(algo, reseed_every=100, normalize_rewards=False, **changes)


class TestResuming:
    @left_to_test_all(lambda given: given["algo"] != "ppo" and given["name"] != "normalised")
    @EVERY
    @pytest.mark.parametrize("name", list(WRAPS))
    def test_a_stopped_run_goes_on_exactly(self, algo: str, name: str, tmp_path: Path) -> None:
        config, wrap = config_for(algo), WRAPS[name]
        whole, run = tmp_path / "whole", tmp_path / "run"
        train(config, wrap=wrap, run_dir=whole, progress=False)
        train(config, wrap=wrap, run_dir=run, callback=stop_at([5 * ROLLOUT]), progress=False)
        resume(run, wrap=wrap, callback=stop_at([13 * ROLLOUT]), progress=False)
        assert resume(run, wrap=wrap, progress=False).finished
        np.testing.assert_equal(outcome(run), outcome(whole))
        saved = [RunFolder(folder).read_wrappers() for folder in (whole, run)]
        assert saved[0]
        np.testing.assert_equal(saved[0], saved[1])

    def test_the_wrappers_are_at_work(self, tmp_path: Path) -> None:
        plain, wrapped = tmp_path / "plain", tmp_path / "wrapped"
        train(config_for("ppo"), run_dir=plain, progress=False)
        train(config_for("ppo"), wrap=gymnasiums, run_dir=wrapped, progress=False)
        first, second = outcome(plain), outcome(wrapped)
        assert not np.array_equal(first["metrics"]["critic_loss"], second["metrics"]["critic_loss"])

    def test_other_wrappers_are_refused(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        train(config_for("ppo"), wrap=Counting, run_dir=run, callback=stop_at([ROLLOUT]), progress=False)
        with pytest.raises(ValueError, match=r"expected Counting, got NormalizeReward\. Give the function"):
            resume(run, wrap=gymnasiums, progress=False)
        with pytest.raises(ValueError, match=r"of your own, .*test_wrap:Counting: load_agent\(run, wrap=\.\.\.\)"):
            resume(run, progress=False)
        with pytest.raises(ValueError, match=r"take the agent that was loaded so"):
            evaluate(run, episodes=1)
        with pytest.raises(ValueError, match="was trained without wrappers of your own; leave wrap= out"):
            load_agent(train(config_for("ppo"), run_dir=tmp_path / "plain", progress=False).run_dir, wrap=Counting)

    def test_a_damaged_state_is_named(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        train(config_for("ppo"), wrap=gymnasiums, run_dir=run, callback=stop_at([ROLLOUT]), progress=False)
        save_tensors(run / "wrappers.safetensors", "wrappers", {}, {"state": {"dict": {"0": {"array": "gone"}}}})
        with pytest.raises(DamagedRunError, match=r"wrappers\.safetensors is damaged .* the state of the wrappers"):
            load_agent(run, wrap=gymnasiums)


class TestReturns:
    def test_they_are_those_of_the_environments(self, tmp_path: Path) -> None:
        """CartPole gives 1 a step, whatever a wrapper makes of it."""
        config = PPOConfig(
            "CartPole-v1",
            num_envs=4,
            backend="sync",
            rollout_steps=32,
            total_steps=640,
            eval_every=320,
            eval_episodes=4,
        )
        seen: list[dict[str, Any]] = []

        def note(progress: Progress) -> None:
            seen.append(dict(progress.row))

        result = train(config, wrap=normalised, run_dir=tmp_path / "run", callback=note, progress=False)
        rows = [row for row in seen if row["episode_return"] is not None]
        assert rows
        assert all(row["episode_return"] == row["episode_length"] for row in rows)
        assert result.best_return is not None
        score = evaluate(result.agent, episodes=4, num_envs=2, backend="sync")
        assert score.returns == tuple(float(length) for length in score.lengths)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = PPOConfig(
        "Pendulum-v1", num_envs=4, backend="sync", rollout_steps=64, total_steps=1024, minibatch_size=64, epochs=1,
        normalize_observations=False, eval_every=512, eval_episodes=2, env_kwargs={"max_episode_steps": 30},
    )  # fmt: skip
    run = tmp_path_factory.mktemp("wrapped") / "run"
    return train(config, wrap=normalised, run_dir=run, progress=False).run_dir


class TestPlaying:
    def test_a_loaded_agent_plays_as_the_trained_one(self, trained: Path) -> None:
        agent = load_agent(trained, wrap=normalised)
        assert agent.observation_space.shape == (3, 3)
        again = load_agent(trained, wrap=normalised)
        scores = [evaluate(one, episodes=3, num_envs=n, backend="sync") for one, n in ((agent, 1), (again, 1))]
        assert scores[0].returns == scores[1].returns
        assert load_agent(trained / "best", wrap=normalised).wrapping is not None

    def test_evaluations_learn_nothing(self, trained: Path) -> None:
        agent = load_agent(trained, wrap=normalised)
        assert agent.wrapping is not None
        before = agent.wrapping.state()
        evaluate(agent, episodes=2, num_envs=2, backend="sync")
        np.testing.assert_equal(agent.wrapping.state(), before)
        with make_vec("Pendulum-v1", 2, "sync") as fleet:
            envs = agent.wrapped(fleet)
            observations, _ = envs.reset(seed=0)
            for _ in range(5):
                observations, *_ = envs.step(agent.act(observations))
            np.testing.assert_equal(read_state(envs), before)

    def test_they_have_the_statistics_of_the_training(self, trained: Path) -> None:
        agent = load_agent(trained, wrap=normalised)
        with make_vec("Pendulum-v1", 1, "sync") as fleet:
            raw, _ = fleet.reset(seed=3)
            raw = raw.copy()
            shown, _ = agent.wrapped(fleet).reset(seed=3)
        assert agent.wrapping is not None
        (moments,) = [state for name, state in agent.wrapping.state().items() if "NormalizeObservation" in name]
        assert moments["count"] > 1000
        expected = (raw - moments["mean"]) / np.sqrt(moments["m2"] / moments["count"] + 1e-8)
        np.testing.assert_allclose(shown[0, -1], expected[0], rtol=1e-5)

    def test_a_training_does_not_notice_evaluations(self, tmp_path: Path) -> None:
        config = config_for("ppo")
        often = dataclasses.replace(config, eval_every=3 * ROLLOUT, eval_episodes=2)
        for name, one in (("never", config), ("often", often)):
            train(one, wrap=normalised, run_dir=tmp_path / name, progress=False)
        never, sometimes = (outcome(tmp_path / name)["tensors"] for name in ("never", "often"))
        np.testing.assert_equal(sometimes, never)

    def test_an_evaluation_is_by_the_statistics_of_that_moment(self, tmp_path: Path) -> None:
        """What was best is what `evaluate` finds of the same weights with the same statistics."""
        scores: list[float] = []

        def note(progress: Progress) -> None:
            scores.append(evaluate(progress.agent, episodes=2, num_envs=2, backend="sync").mean_return)

        config = config_for("ppo", total_steps=4 * ROLLOUT)
        result = train(config, wrap=normalised, run_dir=tmp_path / "run", callback=note, progress=False)
        last = evaluate(load_agent(result.run_dir, wrap=normalised), episodes=2, num_envs=2, backend="sync")
        assert scores[-1] == last.mean_return

    def test_films(self, trained: Path, tmp_path: Path) -> None:
        agent = load_agent(trained, wrap=normalised)
        film = showcase(agent, episodes=2, path=tmp_path / "film.mp4", mosaic=True, progress=False)
        score = evaluate(agent, episodes=2, num_envs=2, backend="sync")
        assert film.lengths == score.lengths
        np.testing.assert_allclose(film.returns, score.returns, rtol=1e-5)

    def test_weights_to_start_from_bring_their_statistics(self, trained: Path, tmp_path: Path) -> None:
        config = dataclasses.replace(load_agent(trained, wrap=normalised).config, total_steps=256, eval_every=0)
        with pytest.raises(ValueError, match="was trained with vector wrappers of your own"):
            train(config, init_from=trained, run_dir=tmp_path / "run", progress=False)
        counts: list[int] = []

        def note(progress: Progress) -> bool:
            assert progress.agent.wrapping is not None
            counts.extend(state["count"] for state in progress.agent.wrapping.state().values())
            return False

        train(config, wrap=normalised, init_from=trained, run_dir=tmp_path / "run", callback=note, progress=False)
        assert min(counts) > 1000


class TestRefusals:
    @pytest.mark.parametrize(
        ("wrap", "error"),
        [
            (lambda envs: None, "must return a gymnasium.vector.VectorEnv, got NoneType"),
            (lambda envs: make_vec("CartPole-v1", 2, "sync"), "must return the environments it was given"),
            (3, "wrap must be a function that puts wrappers around a vector environment, got 3"),
        ],
    )
    def test_what_is_no_wrapping(self, wrap: Any, error: str, tmp_path: Path) -> None:
        with pytest.raises((TypeError, ValueError), match=error):
            train(CONFIGS["ppo"], wrap=wrap, run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()

    def test_a_state_that_no_file_can_hold(self, tmp_path: Path) -> None:
        class Secretive(Counting):
            """Its state is an object."""

            def state_dict(self) -> dict[str, Any]:
                return {"steps": object()}

        with pytest.raises(TypeError, match=r"Secretive.*\['steps'\] is <object .* a checkpoint cannot hold"):
            train(config_for("ppo"), wrap=Secretive, run_dir=tmp_path / "run", progress=False)
        assert not (tmp_path / "run" / "config.json").exists()

    def test_first_ready(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="leave out first_ready or wrap"):
            train(changed("sac", first_ready=1), wrap=Counting, run_dir=tmp_path / "run", progress=False)

    def test_the_function_is_named_in_config_json(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        train(config_for("ppo"), wrap=normalised, run_dir=run, callback=stop_at([ROLLOUT]), progress=False)
        assert json.loads((run / "config.json").read_text())["wrap"] == f"{__name__}:normalised"


def test_states_are_packed_and_unpacked() -> None:
    state = {"a": np.arange(3), "b": (1, 2.5, None, [True, "x"]), "c": {"d": np.float64(0.1), "e": np.array(7)}}
    tree, tensors = packed(state, "here")
    found = unpacked(json.loads(json.dumps(tree)), tensors)
    np.testing.assert_equal(found, state)
    assert isinstance(found["b"], tuple)
    assert isinstance(found["c"]["d"], np.float64)
    assert found["c"]["e"].shape == ()


def test_without_wrappers_there_is_nothing_to_measure() -> None:
    with make_vec("CartPole-v1", 2, "sync") as envs:
        assert measured(envs) is None
