"""ale-py's vector environment behind the contract: its own numbers, and no way to make it hang."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ale_py")

from ale_py.vector_env import AtariVectorEnv as Theirs

from envfleet import make_vec, uniform
from envfleet.errors import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    EnvRaisedError,
    InvalidActionError,
    NoAsyncCallError,
    ResetNeeded,
)

N = 3
SHORT = {"max_num_frames_per_episode": 60}
REGISTERED = {"repeat_action_probability": 0.25, "frameskip": 4, "full_action_space": False}
KEYS = ("lives", "frame_number", "episode_frame_number")


def games(mode: str = "NextStep", env_id: str = "ALE/Pong-v5", vector_kwargs: Any = None, **env_kwargs: Any) -> Any:
    kwargs = {"autoreset_mode": mode, **(vector_kwargs or {})}
    return make_vec(env_id, N, "native", kwargs, **{**SHORT, **env_kwargs})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_results_are_ale_pys_own(mode: str, threads: int) -> None:
    theirs = Theirs("breakout", N, autoreset_mode=mode, **{**REGISTERED, **SHORT})
    with games(mode, "ALE/Breakout-v5", {"threads": threads}) as ours:
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        observations, infos = ours.reset(seed=7)
        expected, expected_infos = theirs.reset(seed=7)
        np.testing.assert_array_equal(observations, expected)
        ended = 0
        for _ in range(60):
            actions = ours.action_space.sample()
            ours_now, theirs_now = ours.step(actions), theirs.step(actions)
            for one, other in zip(ours_now[:4], theirs_now[:4], strict=True):
                np.testing.assert_array_equal(one, other)
            infos, expected_infos = ours_now[4], theirs_now[4]
            for key in KEYS:
                np.testing.assert_array_equal(infos[key], expected_infos[key])
                assert infos[f"_{key}"].all()
            done = ours_now[2] | ours_now[3]
            ended += int(done.sum())
            assert ("final_obs" in infos) == (mode == "SameStep" and bool(done.any()))
            if "final_obs" in infos:
                np.testing.assert_array_equal(infos["_final_obs"], done)
                for env in range(N):
                    final = infos["final_obs"][env]
                    assert (final is not None) == done[env]
                    if final is not None:
                        np.testing.assert_array_equal(final, expected_infos["final_obs"][env])
        assert ended > N
        assert ours_now[1].dtype == np.float64
        assert ours_now[2].dtype == ours_now[3].dtype == np.bool_
    theirs.close()


def test_seeds_repeat_a_game_and_differ_between_environments() -> None:
    with games() as envs:
        frames = []
        for seed in (5, 5, [7, 5, 6]):
            _, infos = envs.reset(seed=seed)
            frames.append(infos["episode_frame_number"])
        np.testing.assert_array_equal(frames[0], frames[1])
        np.testing.assert_array_equal(frames[2], frames[0][[2, 0, 1]])
        assert len(set(frames[0].tolist())) > 1  # the number of idle frames at the start follows from the seed


@pytest.mark.parametrize("action", [6, -1, 77])
def test_an_action_the_game_does_not_have_is_refused_before_anything_is_stepped(action: int) -> None:
    with games() as envs:
        envs.reset(seed=1)
        actions = np.zeros(N, np.int64)
        actions[2] = action
        for refused in (actions, np.zeros(N - 1, np.int64), np.zeros(N)):
            with pytest.raises(InvalidActionError, match="Nothing was stepped"):
                envs.step(refused)
        _, _, _, _, infos = envs.step(np.zeros(N, np.int64))
        before = infos["episode_frame_number"]
        np.testing.assert_array_equal(envs.step([0] * N)[4]["episode_frame_number"], before + 4)


@pytest.mark.parametrize("value", [np.nan, 9.0, -9.0])
def test_continuous_actions_keep_to_their_bounds(value: float) -> None:
    with games(continuous=True) as envs:
        envs.reset(seed=1)
        envs.step(envs.action_space.sample())
        actions = np.zeros((N, 3), np.float32)
        actions[1, 0] = value
        with pytest.raises(InvalidActionError, match=r"action\[1\]"):
            envs.step(actions)
        envs.step(envs.action_space.sample())


def test_a_masked_reset_leaves_the_others_alone() -> None:
    with games(max_num_frames_per_episode=10_000) as envs:
        with pytest.raises(ResetNeeded, match="not enough"):
            envs.reset(options={"reset_mask": np.array([True, False, False])})
        envs.reset(seed=1)
        for _ in range(20):
            _, _, _, _, infos = envs.step([0] * N)
        frames = infos["episode_frame_number"]
        _, infos = envs.reset(seed=[9, None, None], options={"reset_mask": np.array([True, False, False])})
        np.testing.assert_array_equal(infos["_lives"], [True, False, False])
        assert infos["episode_frame_number"][0] < frames[0]
        np.testing.assert_array_equal(envs.step([0] * N)[4]["episode_frame_number"][1:], frames[1:] + 4)


def test_a_reset_clears_a_pending_autoreset() -> None:
    with games(noop_max=0, use_fire_reset=False) as envs:
        envs.reset(seed=1)
        while not envs.step([0] * N)[3].any():
            pass
        envs.reset(seed=1)
        np.testing.assert_array_equal(envs.step([0] * N)[4]["episode_frame_number"], [4] * N)


def test_calls_out_of_turn_are_refused_and_lose_nothing() -> None:
    with games() as envs:
        with pytest.raises(ResetNeeded):
            envs.step([0] * N)
        envs.reset(seed=1)
        envs.step_async([0] * N)
        for out_of_turn in (envs.reset, lambda: envs.step([0] * N), lambda: envs.call("lives")):
            with pytest.raises(AlreadyPendingCallError):
                out_of_turn()
        first = envs.step_wait()[4]["episode_frame_number"]
        with pytest.raises(NoAsyncCallError):
            envs.step_wait()
        envs.send([0] * N)
        np.testing.assert_array_equal(envs.recv()[4]["episode_frame_number"], first + 4)
        with pytest.raises(ValueError, match="all of them"):
            envs.send([0], [1])
        envs.async_reset(seed=1)
        assert envs.recv()[4]["env_id"].tolist() == list(range(N))
        envs.step([0] * N)


def test_a_step_that_was_interrupted_is_forgotten() -> None:
    with games(noop_max=0, use_fire_reset=False) as envs:
        envs.reset(seed=1)
        envs.step_async([0] * N)
        envs._state.give_up("step", KeyboardInterrupt())  # what a Ctrl-C between the two calls does
        with pytest.raises(ResetNeeded, match="interrupted"):
            envs.step([0] * N)
        envs.reset(seed=1)
        np.testing.assert_array_equal(envs.step([0] * N)[4]["episode_frame_number"], [4] * N)


def test_observations_are_the_callers_to_keep() -> None:
    with games(vector_kwargs={"copy": False}) as envs:
        observations, _ = envs.reset(seed=1)
        before = observations.copy()
        for _ in range(20):
            envs.step(envs.action_space.sample())
    np.testing.assert_array_equal(observations, before)


def test_closing_ends_the_threads_in_any_state_and_any_number_of_times() -> None:
    code = """
import threading, os
import envfleet
def threads(): return len(os.listdir("/proc/self/task"))
before = None
for _ in range(5):
    envs = envfleet.make_vec("ALE/Pong-v5", 3, "native", {"threads": 2})
    envs.reset(seed=1)
    envs.step_async([0, 0, 0])
    envs.close()
    envs.close()
    before = threads() if before is None else before
assert threads() == before, (threads(), before)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    envs = games()
    envs.close()
    with pytest.raises(ClosedEnvironmentError):
        envs.reset()
    with pytest.raises(ClosedEnvironmentError):
        envs.step([0] * N)


@pytest.mark.parametrize("name", ["lives", "render", "np_random"])
def test_single_games_cannot_be_looked_at_and_the_error_says_what_to_do(name: str) -> None:
    with games() as envs:
        envs.reset(seed=1)
        with pytest.raises(EnvRaisedError, match="backend='sync' or 'process'"):
            envs.get_attr(name)
        envs.step([0] * N)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"obs_type": "rgb"}, "does not support the argument 'obs_type'"),
        ({"render_mode": "rgb_array"}, "does not support the argument 'render_mode'"),
        ({"max_episode_steps": 10}, "does not support the argument 'max_episode_steps'"),
        ({"num_threads": 2}, r"'num_threads' \(did you mean 'threads'\?\); write vector_kwargs={'threads': 2}"),
        ({"vector_kwargs": {"batch_size": 2}}, "does not support the vector_kwargs argument 'batch_size'"),
        ({"vector_kwargs": {"on_failure": "restart"}}, "does not support the vector_kwargs argument 'on_failure'"),
        ({"vector_kwargs": {"autoreset_mode": "Disabled"}}, "does not support autoreset_mode 'Disabled'"),
        ({"wrappers": [lambda env: env]}, "does not support wrappers"),
        ({"randomize": {"frameskip": uniform(1, 4)}}, "does not support randomize"),
        ({"img_height": 0}, "img_height must be an integer of 1 or more, got 0"),
        ({"frameskip": (2, 5)}, r"frameskip must be an integer of 1 or more, got \(2, 5\)"),
        ({"noop_max": -1}, "noop_max must be an integer of 0 or more, got -1"),
        ({"repeat_action_probability": 1.5}, "repeat_action_probability must be a number between 0 and 1, got 1.5"),
        ({"grayscale": "no"}, "grayscale must be True or False, got 'no'"),
        ({"vector_kwargs": {"threads": 0}}, "threads must be a positive integer or None, got 0"),
    ],
)
def test_what_ale_py_cannot_do_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make_vec("ALE/Pong-v5", 2, "native", **arguments)


def test_seeds_and_options_it_does_not_know_are_refused() -> None:
    with games() as envs:
        with pytest.raises(ValueError, match=r"environment 1 must be below 2\*\*31"):
            envs.reset(seed=2**31 - 1)
        with pytest.raises(ValueError, match="no reset options but reset_mask, got mode"):
            envs.reset(options={"mode": 1})


def test_auto_does_not_change_what_gymnasium_shows() -> None:
    with make_vec("ALE/Pong-v5", 2) as envs:
        assert envs.single_observation_space.shape == (210, 160, 3)
        assert "native" not in envs.plan


def test_the_spec_makes_the_same_fleet_again() -> None:
    with games(img_height=42) as envs, make_vec(envs.spec) as again:
        assert type(again) is type(envs)
        assert again.single_observation_space.shape == (4, 42, 84)
        np.testing.assert_array_equal(again.reset(seed=3)[0], envs.reset(seed=3)[0])


def test_without_ale_py_the_line_that_installs_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(Exception, match=r'pip install "envfleet\[atari\]"'):
        make_vec("ALE/Pong-v5", 2, "native")
