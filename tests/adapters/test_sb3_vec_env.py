"""Fleets as Stable-Baselines3's VecEnv: what they return and refuse, compared with its DummyVecEnv."""

from __future__ import annotations

import csv
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from sb3_envs import Brittle, Recorder, assert_like
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

import envfleet
from envfleet.adapters.sb3 import as_vec_env, make_sb3_vec_env
from envfleet.wrappers import NormalizeReward

PYTHONS = ("sync", "process")
BACKENDS = (*PYTHONS, "native")


def fleet(env_id: Any = Recorder, num_envs: int = 3, backend: str = "sync", **vector_kwargs: Any) -> Any:
    vector_kwargs = {"autoreset_mode": "SameStep", **vector_kwargs}
    return envfleet.make_vec(env_id, num_envs, backend, vector_kwargs)


def play_alike(ours: VecEnv, theirs: VecEnv, steps: int) -> int:
    """Plays the same actions on both and compares everything; returns how many episodes ended."""
    assert_like(ours.reset(), theirs.reset())
    assert_like(ours.reset_infos, theirs.reset_infos)
    theirs.action_space.seed(5)
    ends = 0
    for _ in range(steps):
        actions = np.array([theirs.action_space.sample() for _ in range(theirs.num_envs)])
        our, their = ours.step(actions), theirs.step(actions)
        assert_like(our, their)
        assert_like(ours.reset_infos, theirs.reset_infos)
        ends += int(their[2].sum())
    ours.close()
    theirs.close()
    return ends


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("env_id", ["LunarLander-v3", "CartPole-v1", "HalfCheetah-v5", "FrozenLake-v1"])
def test_everything_is_what_a_dummy_vec_env_returns(env_id: str, backend: str, box2d: None) -> None:
    arguments: dict[str, Any] = {"n_envs": 3, "seed": 7, "env_kwargs": {"max_episode_steps": 13}}
    ours = make_sb3_vec_env(env_id, **arguments, backend=backend)
    assert play_alike(ours, make_vec_env(env_id, **arguments), 40) >= 9


@pytest.mark.parametrize("backend", PYTHONS)
def test_dict_observations_and_infos_of_all_kinds(backend: str) -> None:
    ours = make_sb3_vec_env(Recorder, 3, seed=1, start_index=4, backend=backend)
    assert play_alike(ours, make_vec_env(Recorder, 3, seed=1, start_index=4), 30) > 10


def test_an_environment_of_ones_own_is_compiled(spot: Any) -> None:
    ours = make_sb3_vec_env(spot, 3, seed=1)
    assert "native" in ours.fleet.plan
    assert play_alike(ours, make_vec_env(lambda: gymnasium.make(spot.spec), 3, seed=1), 30) > 5


def test_atari_games_run_in_ale_pys_own_vector_environment() -> None:
    games = {"max_num_frames_per_episode": 100}
    vec_env = make_sb3_vec_env("ALE/Pong-v5", 2, seed=1, backend="native", env_kwargs=games)
    assert vec_env.reset().shape == (2, 4, 84, 84)
    infos = [vec_env.step(np.zeros(2, int))[3][0] for _ in range(26)]
    (last,) = [info for info in infos if info["TimeLimit.truncated"]]
    assert last["terminal_observation"].shape == (4, 84, 84)
    assert last["episode"]["l"] == 25
    vec_env.close()


def test_a_fleet_without_monitor_has_no_episode_infos() -> None:
    vec_env = as_vec_env(fleet("CartPole-v1", backend="native"))
    vec_env.reset()
    infos = [info for _ in range(60) for info in vec_env.step(np.zeros(3, int))[3]]
    assert {*map(tuple, infos)} == {("TimeLimit.truncated",), ("TimeLimit.truncated", "terminal_observation")}
    assert vec_env.env_is_wrapped(Monitor) == [False] * 3
    vec_env.close()


def test_infos_belong_to_the_caller() -> None:
    vec_env = as_vec_env(fleet("CartPole-v1", backend="native"))
    vec_env.reset()
    first = vec_env.step(np.zeros(3, int))[3]
    first[0]["mine"] = 1
    assert vec_env.step(np.zeros(3, int))[3] == [{"TimeLimit.truncated": False}] * 3
    vec_env.close()


def test_vector_wrappers_of_envfleet_may_be_inside() -> None:
    envs = NormalizeReward(fleet("CartPole-v1", backend="native"))
    vec_env = as_vec_env(envs)
    vec_env.reset()
    for _ in range(3):
        _, rewards, _, _ = vec_env.step(np.zeros(3, int))
    assert rewards.dtype == np.float32
    assert (rewards != 1.0).all()
    vec_env.close()


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_other_autoreset_modes_are_refused(mode: str) -> None:
    with fleet(autoreset_mode=mode) as envs, pytest.raises(ValueError, match=r"SAME_STEP.*SAME_STEP"):
        as_vec_env(envs)


def test_views_are_refused() -> None:
    with fleet(copy=False) as envs, pytest.raises(ValueError, match="copy=True"):
        as_vec_env(envs)


def test_what_is_no_fleet_is_refused() -> None:
    envs = gymnasium.make_vec("CartPole-v1", 2, "sync")
    with pytest.raises(TypeError, match="got SyncVectorEnv"):
        as_vec_env(envs)
    envs.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"vec_env_cls": VecEnv}, "DummyVecEnv.*SubprocVecEnv.*'VecEnv'"),
        ({"vec_env_cls": DummyVecEnv, "backend": "process"}, "contradicts vec_env_cls=DummyVecEnv"),
        ({"vec_env_kwargs": {"copy": False}}, "copy=False"),
        ({"vec_env_kwargs": {"autoreset_mode": "NextStep"}}, "SameStep"),
        ({"wrapper_kwargs": {"a": 1}}, "wrapper_class"),
        ({"wrapper_class": OrderEnforcing, "backend": "native"}, "no wrapper_class can wrap"),
        ({"backend": "nowhere"}, "'nowhere'"),
        ({"n_envs": 0}, "n_envs"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        make_sb3_vec_env("CartPole-v1", **arguments)


def test_actions_that_do_not_fit_are_refused() -> None:
    vec_env = make_sb3_vec_env("CartPole-v1", 2, backend="sync")
    vec_env.reset()
    for actions in (np.array([0.5, 1.0]), np.zeros(3, int)):
        with pytest.raises(envfleet.InvalidActionError):
            vec_env.step(actions)
    vec_env.close()


def test_a_missing_library_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("stable_baselines3")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.delitem(sys.modules, "envfleet.adapters.sb3")
    with pytest.raises(ModuleNotFoundError, match=r'pip install "envfleet\[sb3\]"'):
        import envfleet.adapters.sb3  # noqa: F401


# -- seeds, options, attributes ------------------------------------------------------------------------


@pytest.mark.parametrize("backend", PYTHONS)
def test_seeds_and_options_are_used_once(backend: str) -> None:
    vec_env = as_vec_env(fleet(backend=backend))
    vec_env.seed(4)
    vec_env.set_options([{"a": 1}, {}, {"a": 3}])
    vec_env.reset()
    assert vec_env.get_attr("seeds") == [[4], [5], [6]]
    assert vec_env.get_attr("options") == [{"a": 1}, None, {"a": 3}]
    vec_env.reset()
    assert vec_env.get_attr("seeds") == [[4, None], [5, None], [6, None]]
    assert vec_env.get_attr("options") == [None] * 3
    vec_env.close()


@pytest.mark.parametrize("backend", PYTHONS)
def test_attributes_and_methods(backend: str) -> None:
    vec_env = as_vec_env(fleet(backend=backend))
    vec_env.reset()
    vec_env.set_attr("length", [1, 2, 3])
    assert vec_env.get_attr("length") == [[1, 2, 3]] * 3
    vec_env.set_attr("length", 8, indices=[0, -1])
    vec_env.set_attr("length", 9, indices=1)
    assert vec_env.get_attr("length") == [8, 9, 8]
    assert vec_env.env_method("add", 1, right=2, indices=range(2)) == [3, 3]
    assert vec_env.env_method("add", 1, indices=[]) == []
    assert [vec_env.has_attr(name) for name in ("length", "add", "nothing")] == [True, True, False]
    with pytest.raises(AttributeError, match="nothing"):
        vec_env.get_attr("nothing")
    vec_env.close()


def test_methods_are_returned_not_called() -> None:
    vec_env = as_vec_env(fleet())
    assert vec_env.get_attr("add", 0)[0](2) == 3
    assert vec_env.envs[0].add(2) == 3
    vec_env.close()


def test_attributes_of_compiled_environments(box2d: None) -> None:
    vec_env = as_vec_env(fleet("LunarLander-v3", backend="native"))
    assert vec_env.get_attr("gravity", 1) == [-10.0]
    vec_env.set_attr("gravity", -8.0, indices=1)
    assert vec_env.get_attr("gravity") == [-10.0, -8.0, -10.0]
    assert (vec_env.has_attr("gravity"), vec_env.has_attr("action_masks")) == (True, False)
    assert vec_env.env_is_wrapped(TimeLimit) == [False] * 3
    vec_env.close()


@pytest.mark.parametrize("backend", PYTHONS)
def test_wrappers_are_found_where_they_are(backend: str) -> None:
    vec_env = as_vec_env(fleet("CartPole-v1", backend=backend))
    assert vec_env.env_is_wrapped(TimeLimit) == [True] * 3
    assert vec_env.env_is_wrapped(gymnasium.Wrapper, indices=2) == [True]
    assert vec_env.env_is_wrapped(Monitor) == [False] * 3
    vec_env.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_frames_are_tiled(backend: str) -> None:
    vec_env = make_sb3_vec_env("CartPole-v1", 3, backend=backend)
    vec_env.reset()
    assert vec_env.render_mode == "rgb_array"
    assert vec_env.metadata["render_fps"] == 50
    assert [image.shape for image in vec_env.get_images()] == [(400, 600, 3)] * 3
    assert vec_env.render().shape == (800, 1200, 3)
    vec_env.close()


def test_without_a_render_mode_there_are_no_frames() -> None:
    vec_env = as_vec_env(fleet("CartPole-v1"))
    assert vec_env.get_images() == [None] * 3
    vec_env.close()


def test_an_environment_that_was_restarted_says_so() -> None:
    vec_env = as_vec_env(fleet(Brittle, 2, "process", num_workers=2, on_failure="restart"))
    vec_env.reset()
    vec_env.step(np.array([0, 0]))
    _, _, dones, infos = vec_env.step(np.array([0, 1]))
    assert dones.tolist() == [False, True]
    assert infos[1]["TimeLimit.truncated"]
    assert infos[1]["restarted"]
    assert infos[1]["terminal_observation"].tolist() == [1.0]
    vec_env.close()


# -- make_sb3_vec_env ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "plan"), [(DummyVecEnv, "sync"), (SubprocVecEnv, "process"), (None, "native")])
def test_classes_stand_for_backends(cls: Any, plan: str) -> None:
    vec_env = make_sb3_vec_env("CartPole-v1", 2, vec_env_cls=cls)
    assert vec_env.fleet.plan.startswith(plan)
    vec_env.close()


def test_a_measurement_chooses_for_python_environments(tmp_path: Any) -> None:
    vec_env = make_sb3_vec_env(Recorder, 2, monitor_dir=str(tmp_path))
    assert " µs" in vec_env.fleet.plan
    vec_env.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.monitor.csv", "1.monitor.csv"]


def test_the_plan_says_why_wrapped_environments_are_not_compiled() -> None:
    vec_env = make_sb3_vec_env("CartPole-v1", 1, wrapper_class=OrderEnforcing)
    assert vec_env.fleet.plan.startswith("sync")
    assert "no wrapper_class can wrap" in vec_env.fleet.plan
    vec_env.close()


def test_arguments_of_workers() -> None:
    how = {"start_method": "fork", "num_workers": 1}
    vec_env = make_sb3_vec_env("CartPole-v1", 2, vec_env_cls=SubprocVecEnv, vec_env_kwargs=how)
    assert "1 worker" in vec_env.fleet.plan
    vec_env.close()


@pytest.mark.parametrize("backend", PYTHONS)
def test_a_wrapper_is_outside_the_monitor(backend: str) -> None:
    """So the monitor sees rewards, and ends of episodes, as they were before the wrapper."""
    arguments: dict[str, Any] = {
        "n_envs": 2,
        "seed": 3,
        "wrapper_class": gymnasium.wrappers.TransformReward,
        "wrapper_kwargs": {"func": double},
    }
    # Not from a fork server, which would import torch for the monitors first.
    how = {"context": "fork"} if backend == "process" else {}
    ours = make_sb3_vec_env("CartPole-v1", **arguments, backend=backend, vec_env_kwargs=how)
    assert ours.env_is_wrapped(Monitor) == [True, True]
    assert ours.monitor is None
    assert play_alike(ours, make_vec_env("CartPole-v1", **arguments), 60) > 2


def double(reward: float) -> float:
    return 2 * reward


@pytest.mark.parametrize("backend", [*BACKENDS, "wrapped"])
def test_monitors_write_the_same_files(backend: str, tmp_path: Any) -> None:
    arguments: dict[str, Any] = {"n_envs": 2, "seed": 3, "start_index": 1}
    if backend == "wrapped":
        arguments["wrapper_class"] = OrderEnforcing
    further = {"backend": "sync" if backend == "wrapped" else backend}
    for folder, make, more in (("ours", make_sb3_vec_env, further), ("theirs", make_vec_env, {})):
        vec_env = make("CartPole-v1", **arguments, **more, monitor_dir=str(tmp_path / folder))
        vec_env.reset()
        for _ in range(60):
            vec_env.step(np.zeros(2, int))
        vec_env.close()
    ours, theirs = rows_of(tmp_path / "ours"), rows_of(tmp_path / "theirs")
    assert [len(rows) for rows in ours.values()] > [3, 3]
    assert ours == theirs
    assert (tmp_path / "ours" / "1.monitor.csv").read_text().splitlines()[0].endswith('"env_id": "CartPole-v1"}')


def rows_of(folder: Any) -> dict[str, list[list[str]]]:
    """The return and length of each episode by file; without the header, which has the time."""
    return {
        file.name: [row[:2] for row in csv.reader(file.read_text().splitlines()[1:])]
        for file in sorted(folder.iterdir())
    }


def test_monitors_are_asked_as_if_each_environment_had_one() -> None:
    ours, theirs = (make("CartPole-v1", 2, seed=1) for make in (make_sb3_vec_env, make_vec_env))
    for vec_env in (ours, theirs):
        vec_env.reset()
        for _ in range(25):
            vec_env.step(np.ones(2, int))
    for name in ("rewards", "total_steps", "episode_returns", "episode_lengths", "needs_reset"):
        assert ours.get_attr(name) == theirs.get_attr(name), name
    for name in ("get_episode_rewards", "get_episode_lengths", "get_total_steps"):
        assert ours.env_method(name, indices=1) == theirs.env_method(name, indices=1), name
    assert ours.has_attr("get_episode_times")
    assert ours.env_is_wrapped(Monitor) == [True, True]
    ours.set_attr("info_keywords", ("left",), indices=0)
    assert ours.get_attr("info_keywords") == [("left",), ()]
    ours.close()
    theirs.close()


def test_what_a_monitor_forbids_is_refused_before_anything_is_reset() -> None:
    vec_env = make_sb3_vec_env("CartPole-v1", 2, seed=1, monitor_kwargs={"allow_early_resets": False})
    vec_env.reset()
    vec_env.step(np.ones(2, int))
    before = vec_env.get_attr("_elapsed_steps")
    with pytest.raises(RuntimeError, match="before done"):
        vec_env.reset()
    assert vec_env.get_attr("_elapsed_steps") == before == [1, 1]
    vec_env.close()


def test_old_steps_are_dropped() -> None:
    """A monitor that kept all rewards of a long training would fill the memory."""
    vec_env = make_sb3_vec_env("CartPole-v1", 2, seed=1)
    vec_env.reset()
    for _ in range(2_000):
        vec_env.step(np.ones(2, int))
    assert vec_env.monitor is not None
    assert len(vec_env.monitor._rewards) < 300
    assert sum(vec_env.env_method("get_episode_lengths", indices=0)[0]) > 1_980
    vec_env.close()
