"""What is particular to MuJoCo's environments: who owns the physics, what happens when it fails, who draws it."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium.envs import mujoco as gymnasiums
from gymnasium.vector import AutoresetMode
from mujoco_names import NAMES
from native_fleets import played, snapshots

from envfleet import EnvRaisedError, NativeVectorEnv, choice, make_vec, uniform
from envfleet.native.mujoco import Simulations
from envfleet.testing import assert_same


def _actions(envs: gym.vector.VectorEnv[Any, Any, Any], steps: int, seed: int = 0) -> list[Any]:
    envs.action_space.seed(seed)
    return [envs.action_space.sample() for _ in range(steps)]


def _step(env: Any, actions: list[Any]) -> None:
    for action in actions:
        env.step(action)


# --- snapshots -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_in_the_middle_of_an_episode_replays_to_the_bit(name: str, mode: AutoresetMode) -> None:
    with NativeVectorEnv(f"{name}-v5", 3, autoreset_mode=mode, env_kwargs={"max_episode_steps": 30}) as envs:
        envs.reset(seed=0)
        actions = _actions(envs, 50)
        played(envs, actions[:16])
        (shown, *_) = played(envs, actions[16:17])[-1]
        kept = snapshots(envs)
        first = played(envs, actions[17:])
        for env, state in enumerate(kept):
            after = envs.set_state(env, state)
        assert_same(after, shown)
        assert_same(played(envs, actions[17:]), first)


def test_a_snapshot_moves_to_another_environment_and_another_fleet() -> None:
    with make_vec("Ant-v5", 2, "native") as envs, make_vec("Ant-v5", 2, "native") as others:
        envs.reset(seed=0)
        others.reset(seed=50)
        actions = _actions(envs, 20)
        for action in actions[:10]:
            envs.step(action)
        state = envs.get_state(0)
        others.set_state(1, state)
        for action in actions[10:]:
            ours, theirs = envs.step(action), others.step(np.stack([action[0], action[0]]))
            np.testing.assert_array_equal(theirs[0][1], ours[0][0])
            assert theirs[1][1] == ours[1][0]


def test_a_snapshot_of_another_environment_is_refused() -> None:
    with make_vec("Reacher-v5", 1, "native") as envs, make_vec("Swimmer-v5", 1, "native") as others:
        envs.reset(seed=0)
        with pytest.raises(TypeError, match="needs a state of Swimmer"):
            others.set_state(0, envs.get_state(0))


# --- parameters ------------------------------------------------------------------------------------------


def test_set_attr_changes_weights_of_some_environments() -> None:
    with make_vec("HalfCheetah-v5", 3, "native") as envs, make_vec("HalfCheetah-v5", 3, "sync") as expected:
        for each in (envs, expected):
            each.reset(seed=3)
            each.set_attr("_forward_reward_weight", [1.0, 2.5, -1.0])
            each.set_attr("_ctrl_cost_weight", 0.7)
        for action in _actions(envs, 10):
            assert_same(envs.step(action), expected.step(action))


def test_environments_may_differ_in_their_arguments() -> None:
    varied = {"healthy_reward": uniform(0.5, 2.0), "frame_skip": choice([2, 4])}
    fleets = [make_vec("Walker2d-v5", 4, b, randomize=varied, randomize_seed=1) for b in ("native", "sync")]
    with fleets[0] as envs, fleets[1] as expected:
        assert type(envs) is NativeVectorEnv
        assert_same(envs.reset(seed=3), expected.reset(seed=3))
        for action in _actions(envs, 40):
            assert_same(envs.step(action), expected.step(action))


REFUSED: dict[str, dict[str, Any]] = {
    "ctrl_cost_weight=.*another precision": {"ctrl_cost_weight": np.float64(0.1)},
    "healthy_reward='1', which is no Python number": {"healthy_reward": "1"},
    "terminate_when_unhealthy=1, which is no bool": {"terminate_when_unhealthy": 1},
    "reset_noise_scale=-0.1, from which no noise": {"reset_noise_scale": -0.1},
    "the argument 'gravity' of Hopper-v5": {"gravity": 1},
    "environments that differ in 'xml_file'": {"randomize": {"xml_file": choice(["hopper.xml"])}},
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_supported_is_refused_by_name(what: str) -> None:
    with pytest.raises(TypeError, match=f"backend='native' does not support {what}"):
        make_vec("Hopper-v5", 2, "native", **REFUSED[what])


def test_and_auto_falls_back_and_says_why() -> None:
    with make_vec("Hopper-v5", 2, ctrl_cost_weight=np.float64(0.1)) as envs:
        assert type(envs) is not NativeVectorEnv
        assert "Not native, which does not support ctrl_cost_weight=" in envs.plan


def test_a_callback_in_python_is_refused() -> None:
    mujoco.set_mjcb_act_bias(lambda model, data, actuator: 0.0)
    try:
        with pytest.raises(TypeError, match=r"does not support a callback of MuJoCo's \(mjcb_act_bias\)"):
            make_vec("Hopper-v5", 2, "native")
    finally:
        mujoco.set_mjcb_act_bias(None)


def test_a_model_that_lacks_what_the_environment_reads_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "ball.xml"
    model.write_text("<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>")
    with pytest.raises(ValueError, match="this environment needs a model with at least three positions"):
        make_vec("Ant-v5", 2, "native", xml_file=str(model), main_body=0)


def test_without_mujoco_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["mujoco"] = None
import envfleet
with envfleet.make_vec("CartPole-v1", 2, "native") as envs:
    envs.reset(seed=0)
for backend in ("native", "auto"):
    try:
        envfleet.make_vec("HalfCheetah-v5", 2, backend)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert len(re.findall(r"DependencyNotInstalled: .*MuJoCo.*\n.*envfleet\[envs\]", ran.stdout)) == 2, ran.stdout


# --- physics ---------------------------------------------------------------------------------------------


def _small_memory(folder: Path) -> str:
    """The hopper in too little memory to have contacts."""
    original = Path(gymnasiums.__path__[0]) / "assets" / "hopper.xml"
    model = folder / "hopper.xml"
    model.write_text(original.read_text().replace("<option ", '<size memory="4000"/><option ', 1))
    return str(model)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_of_mujocos_names_the_environment_and_a_reset_mends_it(tmp_path: Path, threads: int) -> None:
    with make_vec("Hopper-v5", 4, "native", {"threads": threads}, xml_file=_small_memory(tmp_path)) as envs:
        for _ in range(2):
            envs.reset(seed=0)
            with pytest.raises(EnvRaisedError, match=r"Environment \d .*stack overflow"):
                _step(envs, _actions(envs, 300))


def test_mujocos_own_functions_still_raise_their_own_errors(tmp_path: Path) -> None:
    model = _small_memory(tmp_path)
    with make_vec("Hopper-v5", 1, "native", xml_file=model):
        env = gym.make("Hopper-v5", xml_file=model)
        env.reset(seed=0)
        env.action_space.seed(0)
        with pytest.raises(mujoco.FatalError, match="stack overflow"):
            _step(env, [env.action_space.sample() for _ in range(300)])


def test_actions_that_are_no_numbers_do_what_they_do_in_gymnasium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log of its warnings there
    fleets = [make_vec("Swimmer-v5", 3, b, disable_env_checker=True) for b in ("native", "sync")]
    with fleets[0] as envs, fleets[1] as expected:
        assert_same(envs.reset(seed=0), expected.reset(seed=0))
        actions = _actions(envs, 5)
        actions[2][1] = np.nan
        for action in actions:
            assert_same(envs.step(action), expected.step(action))


def test_simulations_live_as_long_as_the_fleet_and_no_longer() -> None:
    def alive() -> list[Simulations]:
        gc.collect()
        # By its type alone: isinstance asks objects of other libraries, and some of them answer with warnings.
        return [each for each in gc.get_objects() if type(each) is Simulations]

    others = {id(each) for each in alive()}
    envs = make_vec("Reacher-v5", 5, "native")
    envs.reset(seed=0)
    (ours,) = [weakref.ref(each) for each in alive() if id(each) not in others]
    envs.step(envs.action_space.sample())
    envs.close()
    assert ours() is not None
    del envs
    gc.collect()
    assert ours() is None


# --- drawing ---------------------------------------------------------------------------------------------

DRAWS = "import gymnasium; env = gymnasium.make('Reacher-v5', render_mode='rgb_array'); env.reset(); env.render()"

FRAMES = """
import pickle
import sys

from envfleet import NativeVectorEnv, make_vec
from envfleet.testing import assert_same

for name in ("HalfCheetah-v5", "Pusher-v5"):
    kwargs = {"render_mode": sys.argv[1], "width": 64, "height": 48}
    with make_vec(name, 2, "native", **kwargs) as envs, make_vec(name, 2, "sync", **kwargs) as expected:
        assert type(envs) is NativeVectorEnv
        envs.action_space.seed(0)
        assert_same(envs.reset(seed=0), expected.reset(seed=0))
        before = envs.render()
        assert_same(before, expected.render())  # both: the camera that follows a body remembers where it was
        for _ in range(5):
            action = envs.action_space.sample()
            envs.step(action)
            expected.step(action)
        after = envs.render()
        assert_same(after, expected.render())
        assert pickle.dumps(after) != pickle.dumps(before)
        print(len(after))
"""


@pytest.fixture(scope="module")
def drawing() -> dict[str, str]:
    """The environment variables with which MuJoCo finds something to draw with. It looks only once, when imported."""
    command = [sys.executable, "-c", DRAWS]
    for library in (os.environ.get("MUJOCO_GL", ""), "egl", "osmesa"):
        variables = {**os.environ, "MUJOCO_GL": library}
        if subprocess.run(command, env=variables, capture_output=True, timeout=100, check=False).returncode == 0:
            return variables
    pytest.skip("MuJoCo finds nothing to draw with: no display, no EGL, no OSMesa")


@pytest.mark.parametrize("render_mode", ["rgb_array", "depth_array", "rgbd_tuple"])
def test_frames_are_gymnasiums(render_mode: str, drawing: dict[str, str]) -> None:
    command = [sys.executable, "-c", FRAMES, render_mode]
    done = subprocess.run(command, env=drawing, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "2\n2\n"), done.stderr
