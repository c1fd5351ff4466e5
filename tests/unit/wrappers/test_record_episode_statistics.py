from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from scripted import (
    DISABLED,
    MODES,
    NEXT_STEP,
    SAME_STEP,
    Ending,
    FrozenOutputs,
    Maker,
    Play,
    ScriptedEnv,
    env_fns,
    patient,
    plays,
    reward_of,
    run,
)

from envfleet.wrappers import RecordEpisodeStatistics

SHORT = (Ending(2, False),)
LONG = (Ending(100, False),)
ACTIONS = np.zeros((2, 2), dtype=np.float32)


@patient
@given(play=plays())
def test_reports_equal_those_kept_by_hand(make: Maker, play: Play) -> None:
    envs = RecordEpisodeStatistics(play.vector_env(make), buffer_length=3)
    rewards: list[list[float]] = [[] for _ in play.scripts]
    finished: list[list[float]] = []
    for operation, result in run(envs, play.operations):
        done = [row.done and row.played for row in operation.rows]
        for index, row in enumerate(operation.rows):
            if row.fresh and row.first and row.final is None:
                rewards[index] = []
            if row.played:
                rewards[index].append(row.reward)
        if operation.mask is None:
            check_report(result[-1], done, rewards)
        for index, over in enumerate(done):
            if over:
                finished.append(rewards[index])
                rewards[index] = []
        assert envs.episode_count == len(finished)
        np.testing.assert_allclose(envs.return_queue, [sum(episode) for episode in finished[-3:]])
        assert list(envs.length_queue) == [len(episode) for episode in finished[-3:]]
        assert len(envs.time_queue) == len(envs.length_queue)
    envs.close()


def check_report(infos: dict[str, Any], done: list[bool], rewards: list[list[float]]) -> None:
    assert ("episode" in infos) == ("_episode" in infos) == any(done)
    if not any(done):
        return
    np.testing.assert_array_equal(infos["_episode"], done)
    report = infos["episode"]
    assert set(report) == {"r", "l", "t"}
    pairs = list(zip(rewards, done, strict=True))
    np.testing.assert_allclose(report["r"], [sum(episode) if over else 0.0 for episode, over in pairs])
    np.testing.assert_array_equal(report["l"], [len(episode) if over else 0 for episode, over in pairs])
    np.testing.assert_array_equal(report["t"] != 0.0, (report["t"] > 0.0) & done)


@pytest.mark.parametrize("mode", MODES)
def test_same_layout_and_attributes_as_gymnasium(mode: AutoresetMode) -> None:
    def make() -> Any:
        return SyncVectorEnv(env_fns([SHORT, (Ending(3, True),)]), autoreset_mode=mode)

    ours, theirs = RecordEpisodeStatistics(make()), gym.wrappers.vector.RecordEpisodeStatistics(make())
    ours.reset(), theirs.reset()
    for _ in range(12):
        *_, terminated, truncated, infos = ours.step(ACTIONS)
        expected = theirs.step(ACTIONS)[-1]
        assert set(infos) == set(expected)
        if "episode" in infos:
            for name in ("r", "l"):
                np.testing.assert_array_equal(infos["episode"][name], expected["episode"][name])
            for name in ("r", "l", "t"):
                assert infos["episode"][name].dtype == expected["episode"][name].dtype
        np.testing.assert_array_equal(ours.episode_returns, theirs.episode_returns)
        np.testing.assert_array_equal(ours.episode_lengths, theirs.episode_lengths)
        if mode is DISABLED and (terminated | truncated).any():
            ours.reset(), theirs.reset()
    assert ours.episode_count == theirs.episode_count > 0
    assert ours.return_queue == theirs.return_queue
    assert ours.length_queue == theirs.length_queue
    assert ours.time_queue.maxlen == theirs.time_queue.maxlen == 100


@pytest.mark.parametrize("mode", MODES)
def test_a_masked_reset_keeps_the_other_episodes(make: Maker, mode: AutoresetMode) -> None:
    envs = RecordEpisodeStatistics(make(env_fns([LONG, (Ending(3, True),)]), autoreset_mode=mode))
    envs.reset()
    envs.step(ACTIONS), envs.step(ACTIONS)
    options = {"reset_mask": np.array([True, False]), "level": 3}
    envs.reset(options=options)
    assert list(options) == ["reset_mask", "level"]
    *_, infos = envs.step(ACTIONS)
    np.testing.assert_array_equal(infos["_episode"], [False, True])
    np.testing.assert_array_equal(infos["episode"]["l"], [0, 3])
    np.testing.assert_allclose(infos["episode"]["r"][1], sum(reward_of(1, 0, step) for step in (1, 2, 3)))
    np.testing.assert_array_equal(envs.episode_lengths[0], 1)
    envs.close()


@pytest.mark.parametrize("mode", [NEXT_STEP, DISABLED])
def test_a_masked_reset_leaves_the_last_report_alone(make: Maker, mode: AutoresetMode) -> None:
    envs = RecordEpisodeStatistics(make(env_fns([(Ending(1, False),), LONG]), autoreset_mode=mode))
    envs.reset()
    *_, infos = envs.step(ACTIONS)
    envs.reset(options={"reset_mask": np.array([True, False])})
    np.testing.assert_array_equal(infos["_episode"], [True, False])
    envs.close()


@pytest.mark.parametrize("mode", MODES)
def test_durations_are_of_the_reported_episode(monkeypatch: pytest.MonkeyPatch, mode: AutoresetMode) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    envs = RecordEpisodeStatistics(SyncVectorEnv(env_fns([SHORT]), autoreset_mode=mode))
    envs.reset()
    durations = []
    for _ in range(8):
        now += 0.25
        *_, terminated, _, infos = envs.step(ACTIONS[:1])
        if terminated[0]:
            durations.append(infos["episode"]["t"][0])
            if mode is DISABLED:
                now += 5.0
                envs.reset()
    assert durations == [0.5] * len(durations)
    assert list(envs.time_queue) == durations
    assert len(durations) == (3 if mode is NEXT_STEP else 4)


@pytest.mark.parametrize("mode", MODES)
def test_arrays_of_the_environment_are_left_alone(make: Maker, mode: AutoresetMode) -> None:
    inner = FrozenOutputs(make(env_fns([(Ending(1, False),), LONG]), autoreset_mode=mode))
    envs = RecordEpisodeStatistics(inner, stats_key="game")
    options = {"reset_mask": np.array([True, False])}
    assert set(envs.reset()[1]) == set(inner.infos)
    assert set(envs.step(ACTIONS)[-1]) == set(inner.infos) | {"game", "_game"}
    inner.check_untouched()
    assert set(envs.reset(options=options)[1]) == set(inner.infos)
    envs.close()


def test_a_key_that_is_taken_is_refused_by_name() -> None:
    twice = RecordEpisodeStatistics(RecordEpisodeStatistics(SyncVectorEnv(env_fns([(Ending(1, False),)]))))
    twice.reset()
    with pytest.raises(ValueError, match=r"already has 'episode'.*another stats_key"):
        twice.step(ACTIONS[:1])


def test_two_recorders_with_two_keys() -> None:
    inner = RecordEpisodeStatistics(SyncVectorEnv(env_fns([(Ending(1, False),)])), stats_key="raw")
    twice = RecordEpisodeStatistics(inner)
    twice.reset()
    *_, infos = twice.step(ACTIONS[:1])
    np.testing.assert_array_equal(infos["raw"]["r"], infos["episode"]["r"])


def test_statistics_inside_the_environments_stay_apart_in_same_step_mode() -> None:
    def recorded() -> gym.Env[Any, Any]:
        return gym.wrappers.RecordEpisodeStatistics(ScriptedEnv(0, SHORT))

    envs = RecordEpisodeStatistics(SyncVectorEnv([recorded], autoreset_mode=SAME_STEP))
    envs.reset()
    envs.step(ACTIONS[:1])
    *_, infos = envs.step(ACTIONS[:1])
    assert infos["final_info"]["episode"]["l"][0] == infos["episode"]["l"][0] == 2


def test_list_infos_inside_are_refused() -> None:
    inner = gym.wrappers.vector.DictInfoToList(SyncVectorEnv(env_fns([LONG])))
    envs = RecordEpisodeStatistics(inner)
    envs.reset()
    with pytest.raises(TypeError, match="RecordEpisodeStatistics needs infos as one dict of arrays, got list"):
        envs.step(ACTIONS[:1])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"buffer_length": 0}, ValueError, "buffer_length must be at least 1, got 0"),
        ({"buffer_length": None}, TypeError, "buffer_length must be an integer, got None"),
        ({"stats_key": ""}, TypeError, "stats_key must be a string that is not empty"),
        ({"stats_key": 7}, TypeError, "stats_key must be a string that is not empty, got 7"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        RecordEpisodeStatistics(SyncVectorEnv(env_fns([LONG])), **arguments)
