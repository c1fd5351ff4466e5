"""Rewards divided by the deviation of the discounted return: what is counted, what is saved, what stays as it was."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from players import register_players
from small_runs import CONFIGS, EVERY, changed, outcome, stop_at
from tiny_envs import EXAMPLE, NEXT_STEP, SAME_STEP, counting_policy, scripted_fleet

from envfleet.errors import DamagedRunError
from envfleet.train import A2CConfig, Progress, evaluate, resume, train
from envfleet.train.algorithms.reward_scaling import LARGEST_NORMALIZED, RewardScaling
from envfleet.train.collecting import Position, Rollout, begin, collect
from envfleet.train.folders.checkpoint import load_checkpoint
from envfleet.train.folders.folder import RunFolder
from envfleet.wrappers import NormalizeReward

GAMMA = 0.9
MODES = pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP], ids=["NEXT_STEP", "SAME_STEP"])


def scaling(num_envs: int = 1, reward_scale: float = 1.0, normalize: bool = True) -> RewardScaling:
    return RewardScaling(num_envs, GAMMA, reward_scale, normalize=normalize)


def rollouts(mode: AutoresetMode, *steps: int, scripts: Any = (EXAMPLE, EXAMPLE[1:])) -> list[Rollout]:
    """Rollouts of so many steps, one after the other."""
    found = []
    with scripted_fleet(mode, scripts) as envs:
        position, act = begin(envs, 0), counting_policy(len(scripts))
        for number in steps:
            found.append(collect(envs, act, number, position))
            position = found[-1].end
    return found


def a_rollout(rewards: Sequence[float], valid: str = "", ended: str = "", **more: Any) -> Rollout:
    """Of one environment; `valid` and `ended` are signs, "x" for yes."""
    flags = [np.array([[sign == "x"] for sign in signs.ljust(len(rewards), ".")]) for signs in (valid, ended)]
    nothing = np.zeros((len(rewards), 1, 1))
    valid_rows = flags[0] if valid else np.ones((len(rewards), 1), np.bool_)
    finals = np.zeros((int(flags[1].sum()), 1))
    end = Position(np.zeros((1, 1)), np.zeros(1, np.bool_))
    values = np.array(rewards, np.float64)[:, None]
    return Rollout(nothing, nothing[..., 0], values, flags[1], np.zeros_like(flags[1]), valid_rows, finals, end, **more)


def factor_after(*data: Rollout, num_envs: int = 1) -> float:
    found = scaling(num_envs)
    for rollout in data:
        found.count(rollout)
    return found.factor


def one_over_deviation(*returns: float) -> float:
    return 1 / float(np.std(returns))


class TestStatistics:
    @MODES
    def test_they_are_those_of_the_wrapper(self, mode: AutoresetMode) -> None:
        parts = rollouts(mode, 7, 1, 12)
        with scripted_fleet(mode) as envs:
            wrapped = NormalizeReward(envs, GAMMA)
            wrapped.reset(seed=0)
            act = counting_policy(2)
            for _ in range(20):
                wrapped.step(act(None))
            expected = float(wrapped.return_rms.var)
        assert factor_after(*parts, num_envs=2) == pytest.approx(expected**-0.5, rel=1e-12)

    @MODES
    def test_each_episode_begins_at_0(self, mode: AutoresetMode) -> None:
        # Rewards are the squares of the steps: 1, 4, 9 | 1, 4 | 1 in these three episodes.
        (rollout,) = rollouts(mode, 8 if mode is NEXT_STEP else 6, scripts=(EXAMPLE,))
        assert rollout.transitions == 6
        first, second = 4 + GAMMA, 9 + GAMMA * (4 + GAMMA)
        assert factor_after(rollout) == pytest.approx(one_over_deviation(1, first, second, 1, first, 1))

    def test_an_episode_goes_on_in_the_next_rollout(self) -> None:
        assert factor_after(a_rollout([1]), a_rollout([2])) == pytest.approx(one_over_deviation(1, 2 + GAMMA))

    def test_not_after_a_reset_of_all(self) -> None:
        later = dataclasses.replace(a_rollout([2]), fresh=True)
        assert factor_after(a_rollout([1]), later) == pytest.approx(one_over_deviation(1, 2))

    def test_rows_that_are_no_transitions_change_nothing(self) -> None:
        with_gaps = a_rollout([1, 77, 2, 88, 3], valid="x.x.x")
        assert factor_after(with_gaps) == factor_after(a_rollout([1, 2, 3]))
        nothing = a_rollout([5], valid=".")
        assert factor_after(a_rollout([1]), nothing, a_rollout([2])) == factor_after(a_rollout([1]), a_rollout([2]))

    def test_what_was_dropped_is_not_carried_on(self) -> None:
        dropped = np.array([[False], [True], [True], [False]])
        rollout = a_rollout([1, 0, 0, 2], valid="x..x", dropped=dropped)
        assert factor_after(rollout) == pytest.approx(one_over_deviation(1, 2))

    def test_time_limits_and_ends_are_ends(self) -> None:
        terminated = a_rollout([1, 2], ended="x.")
        truncated = dataclasses.replace(terminated, terminated=terminated.truncated, truncated=terminated.terminated)
        assert factor_after(terminated) == factor_after(truncated) == pytest.approx(one_over_deviation(1, 2))


class TestFactor:
    def test_it_is_the_reward_scale_where_nothing_is_normalised(self) -> None:
        found = scaling(reward_scale=0.01, normalize=False)
        found.count(a_rollout([1, 50, 3]))
        assert found.factor == 0.01
        assert found.tensors() == {}

    def test_the_reward_scale_is_on_top(self) -> None:
        found = scaling(reward_scale=3.0)
        found.count(a_rollout([1, 50, 3]))
        assert found.factor == 3 * factor_after(a_rollout([1, 50, 3]))

    def test_nothing_is_scaled_before_there_was_a_reward(self) -> None:
        assert scaling().factor == factor_after(a_rollout([0, 0])) == 1.0

    def test_a_rare_reward_is_not_blown_up(self) -> None:
        rare = a_rollout([*[0.0] * 9_999, 1.0])
        assert factor_after(rare) == LARGEST_NORMALIZED

    def test_equal_rewards_are_not_blown_up(self) -> None:
        assert factor_after(a_rollout([0.1] * 30, ended="x" * 30)) == pytest.approx(LARGEST_NORMALIZED / 0.1)

    @pytest.mark.parametrize("unit", [1e-20, 1e-3, 1e3, 1e29])
    def test_the_unit_of_rewards_does_not_matter(self, unit: float) -> None:
        rewards = [1.0, -2.0, 0.5, 4.0]
        found = factor_after(a_rollout([unit * reward for reward in rewards]))
        assert found * unit == pytest.approx(factor_after(a_rollout(rewards)))


class TestSaving:
    def test_it_goes_on_to_the_bit(self) -> None:
        first, second = rollouts(SAME_STEP, 13, 9)
        ours, theirs = scaling(2), scaling(2)
        ours.count(first)
        theirs.load_tensors({**ours.tensors(), "noise": torch.zeros(1)})
        for one in (ours, theirs):
            one.count(second)
        assert ours.factor == theirs.factor
        assert all(torch.equal(tensor, theirs.tensors()[name]) for name, tensor in ours.tensors().items())

    def test_what_was_saved_does_not_change_later(self) -> None:
        first, second = rollouts(SAME_STEP, 13, 9)
        ours = scaling(2)
        ours.count(first)
        saved = ours.tensors()
        before = {name: tensor.clone() for name, tensor in saved.items()}
        ours.count(second)
        assert all(torch.equal(saved[name], before[name]) for name in saved)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("returns", torch.zeros(3, dtype=torch.float64), "must be 2 finite numbers"),
            ("returns", torch.full((2,), torch.nan, dtype=torch.float64), "must be 2 finite numbers"),
            ("largest", torch.tensor(-1.0, dtype=torch.float64), "must be a number of 0 or more"),
            ("m2", torch.tensor(-1.0, dtype=torch.float64), "cannot be negative"),
            ("count", torch.tensor(-1), "must not be negative"),
        ],
    )
    def test_what_cannot_be_is_refused(self, name: str, value: torch.Tensor, message: str) -> None:
        found = scaling(2)
        found.count(rollouts(SAME_STEP, 5)[0])
        before = found.factor
        with pytest.raises(ValueError, match=message):
            found.load_tensors({**found.tensors(), f"reward_scaling.{name}": value})
        assert found.factor == before


class TestRuns:
    @EVERY
    def test_a_stopped_run_goes_on_exactly(self, algo: str, tmp_path: Path) -> None:
        # Streams of a hundred steps, ten episodes, so that all environments are reset in between as well.
        config = changed(algo, reseed_every=20, total_steps=15 * 32)
        assert config.normalize_rewards
        train(config, run_dir=tmp_path / "whole", progress=False, loggers=())
        train(config, run_dir=tmp_path / "parts", callback=stop_at([160]), progress=False, loggers=())
        saved = load_checkpoint(RunFolder(tmp_path / "parts"))
        assert saved is not None
        assert int(saved.tensors["extra/reward_scaling.count"]) == saved.notes["step"] == 160
        assert resume(tmp_path / "parts", progress=False, loggers=()).finished
        np.testing.assert_equal(outcome(tmp_path / "parts"), outcome(tmp_path / "whole"))

    @EVERY
    def test_a_checkpoint_without_the_statistics_is_refused(self, algo: str, tmp_path: Path) -> None:
        run = tmp_path / "run"
        train(dataclasses.replace(CONFIGS[algo], normalize_rewards=False), run_dir=run, progress=False, loggers=())
        text = (run / "config.json").read_text()
        (run / "config.json").write_text(text.replace('"normalize_rewards": false', '"normalize_rewards": true'))
        with pytest.raises(DamagedRunError, match=r"lacks the tensors extra/reward_scaling\.count"):
            resume(run, progress=False, loggers=())

    @EVERY
    def test_a_run_of_before_there_was_a_choice_goes_on_without(self, algo: str, tmp_path: Path) -> None:
        config = changed(algo, normalize_rewards=False, reward_scale=0.01)
        train(config, run_dir=tmp_path / "whole", progress=False, loggers=())
        run = tmp_path / "old"
        train(config, run_dir=run, callback=stop_at([320]), progress=False, loggers=())
        content = json.loads((run / "config.json").read_text())
        del content["config"]["normalize_rewards"]
        (run / "config.json").write_text(json.dumps(content))
        assert RunFolder(run).read_config()[0] == config
        assert resume(run, progress=False, loggers=()).finished
        np.testing.assert_equal(outcome(run), outcome(tmp_path / "whole"))

    @EVERY
    def test_without_it_learning_is_as_if_there_were_none(
        self, algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = changed(algo, normalize_rewards=False, reward_scale=0.01)
        train(config, run_dir=tmp_path / "run", progress=False, loggers=())
        monkeypatch.setattr(RewardScaling, "factor", config.reward_scale)
        monkeypatch.setattr(RewardScaling, "count", lambda *_: None)
        train(config, run_dir=tmp_path / "plain", progress=False, loggers=())
        np.testing.assert_equal(outcome(tmp_path / "run"), outcome(tmp_path / "plain"))
        assert not any("reward_scaling" in name for name in outcome(tmp_path / "run")["tensors"])

    def test_evaluation_counts_nothing_and_reports_returns_as_they_are(self, tmp_path: Path) -> None:
        register_players()
        settings: dict[str, Any] = {"num_envs": 2, "rollout_steps": 16, "total_steps": 320, "backend": "sync"}
        config = A2CConfig("players/Coin-v0", **settings, env_kwargs={"short": 500.0, "long": 500.0})
        found = []

        def judge(progress: Progress) -> None:
            found.append(evaluate(progress.agent, episodes=3, backend="sync").mean_return)

        train(config, run_dir=tmp_path / "judged", callback=judge, progress=False, loggers=())
        train(config, run_dir=tmp_path / "alone", progress=False, loggers=())
        assert min(found) >= 500
        np.testing.assert_equal(outcome(tmp_path / "judged"), outcome(tmp_path / "alone"))


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP], ids=["NEXT_STEP", "SAME_STEP"])
def test_a_rollout_knows_whether_it_follows_a_reset(mode: AutoresetMode) -> None:
    assert [rollout.fresh for rollout in rollouts(mode, 3, 2, 4)] == [True, False, False]
