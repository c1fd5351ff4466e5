"""Stable-Baselines3 trains on fleets, with all its wrappers and callbacks, and ends with the weights of DummyVecEnv."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from sb3_envs import Masked, Recorder, assert_like
from stable_baselines3 import A2C, DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import (
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from envfleet.adapters.sb3 import as_vec_env, make_sb3_vec_env
from envfleet.make import make_vec

PYTHONS = ("sync", "process")
BACKENDS = (*PYTHONS, "native")


def small() -> dict[str, Any]:
    """Of a small network; a new dict each time, as models add to it."""
    return {"net_arch": [8]}


def assert_same_weights(train: Callable[[VecEnv], Any], ours: VecEnv, theirs: VecEnv) -> None:
    """Trains on both and compares all parameters bit by bit."""
    models = [train(vec_env) for vec_env in (ours, theirs)]
    our, their = (model.policy.state_dict() for model in models)
    assert our.keys() == their.keys()
    for name in their:
        assert torch.equal(our[name], their[name]), name
    episodes = [[{"episode": each} for each in model.ep_info_buffer] for model in models]
    assert_like(*episodes)
    assert episodes[0]
    for model in models:
        model.get_env().close()


def ppo(vec_env: VecEnv) -> PPO:
    model = PPO("MlpPolicy", vec_env, n_steps=40, batch_size=40, n_epochs=2, seed=3, policy_kwargs=small())
    return model.learn(320)


def a2c(vec_env: VecEnv) -> A2C:
    return A2C("MlpPolicy", vec_env, n_steps=8, seed=3, policy_kwargs=small()).learn(320)


def sac(vec_env: VecEnv) -> SAC:
    sizes = {"buffer_size": 400, "learning_starts": 40, "train_freq": 8, "batch_size": 16}
    model = SAC("MlpPolicy", vec_env, **sizes, seed=3, policy_kwargs=small())
    return model.learn(200)


def her(algorithm: Any) -> Callable[[VecEnv], Any]:
    def train(vec_env: VecEnv) -> Any:
        model = algorithm(
            "MultiInputPolicy",
            vec_env,
            replay_buffer_class=HerReplayBuffer,
            replay_buffer_kwargs={"n_sampled_goal": 2},
            buffer_size=200,
            learning_starts=60,
            train_freq=4,
            batch_size=16,
            seed=3,
            policy_kwargs=small(),
        )
        return model.learn(160)

    return train


def cnn(vec_env: VecEnv) -> PPO:
    stacked = VecFrameStack(vec_env, 2)
    model = PPO("CnnPolicy", stacked, n_steps=16, batch_size=32, n_epochs=1, seed=3, policy_kwargs=small())
    assert isinstance(model.env, VecTransposeImage)
    return model.learn(64)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("train", [ppo, a2c])
def test_on_policy_training(train: Callable[[VecEnv], Any], backend: str, box2d: None) -> None:
    how: dict[str, Any] = {"n_envs": 4, "seed": 5, "env_kwargs": {"max_episode_steps": 30}}
    ours = make_sb3_vec_env("LunarLander-v3", **how, backend=backend)
    assert_same_weights(train, ours, make_vec_env("LunarLander-v3", **how))


@pytest.mark.parametrize("backend", BACKENDS)
def test_off_policy_training(backend: str) -> None:
    how: dict[str, Any] = {"n_envs": 2, "seed": 5, "env_kwargs": {"max_episode_steps": 30}}
    ours = make_sb3_vec_env("Pendulum-v1", **how, backend=backend)
    assert_same_weights(sac, ours, make_vec_env("Pendulum-v1", **how))


@pytest.mark.parametrize("backend", PYTHONS)
@pytest.mark.parametrize(("algorithm", "continuous"), [(SAC, True), (DQN, False)])
def test_hindsight_experience_replay(algorithm: Any, continuous: bool, backend: str) -> None:
    how: dict[str, Any] = {
        "n_envs": 2,
        "seed": 5,
        "env_kwargs": {"n_bits": 4, "continuous": continuous, "max_steps": 6},
    }
    ours = make_sb3_vec_env(BitFlippingEnv, **how, backend=backend)
    assert_same_weights(her(algorithm), ours, make_vec_env(BitFlippingEnv, **how))


@pytest.mark.parametrize("backend", BACKENDS)
def test_pictures_with_stacked_frames(spot: Any, backend: str) -> None:
    given = spot if backend == "native" else (lambda: gymnasium.make(spot.spec))
    ours = make_sb3_vec_env(given, 2, seed=5, backend=backend)
    assert_same_weights(cnn, ours, make_vec_env(lambda: gymnasium.make(spot.spec), 2, seed=5))


@pytest.mark.parametrize("backend", PYTHONS)
def test_dict_observations(backend: str) -> None:
    def train(vec_env: VecEnv) -> PPO:
        model = PPO("MultiInputPolicy", vec_env, n_steps=8, batch_size=8, n_epochs=1, seed=3, policy_kwargs=small())
        return model.learn(48)

    ours = make_sb3_vec_env(Recorder, 2, seed=5, backend=backend)
    assert_same_weights(train, ours, make_vec_env(Recorder, 2, seed=5))


@pytest.mark.parametrize("backend", BACKENDS)
def test_normalised_and_monitored_training(backend: str, tmp_path: Path) -> None:
    def train(vec_env: VecEnv) -> PPO:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The environment is already wrapped with a `Monitor`")
            return ppo(VecNormalize(VecMonitor(vec_env, str(tmp_path / "all"))))

    ours = make_sb3_vec_env("CartPole-v1", 2, seed=5, backend=backend)
    assert_same_weights(train, ours, make_vec_env("CartPole-v1", 2, seed=5))


def test_statistics_and_models_are_saved_and_loaded(tmp_path: Path) -> None:
    vec_env = VecNormalize(make_sb3_vec_env("CartPole-v1", 2, seed=5))
    model = ppo(vec_env)
    model.save(tmp_path / "model")
    vec_env.save(str(tmp_path / "statistics"))
    again = VecNormalize.load(str(tmp_path / "statistics"), make_sb3_vec_env("CartPole-v1", 2, seed=5))
    np.testing.assert_array_equal(again.obs_rms.mean, vec_env.obs_rms.mean)
    loaded = PPO.load(tmp_path / "model", env=again)
    loaded.learn(80, reset_num_timesteps=False)
    assert loaded.num_timesteps == model.num_timesteps + 80
    vec_env.close()
    again.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_evaluation_gives_the_same_returns(backend: str) -> None:
    ours, theirs = make_sb3_vec_env("CartPole-v1", 2, seed=5, backend=backend), make_vec_env("CartPole-v1", 2, seed=5)
    model = PPO("MlpPolicy", theirs, seed=3, policy_kwargs=small(), device="cpu")
    found = []
    for vec_env in (ours, theirs):
        vec_env.seed(9)
        found.append(evaluate_policy(model, vec_env, n_eval_episodes=6, return_episode_rewards=True))
        vec_env.close()
    assert found[0] == found[1]
    assert len(found[0][0]) == 6


def test_evaluation_without_monitor_is_warned_about() -> None:
    vec_env = as_vec_env(make_vec("CartPole-v1", 2, "native", {"autoreset_mode": "SameStep"}))
    model = PPO("MlpPolicy", vec_env, policy_kwargs=small())
    with pytest.warns(UserWarning, match="not wrapped with a ``Monitor``"):
        evaluate_policy(model, vec_env, n_eval_episodes=2)
    vec_env.close()


def test_eval_callback(tmp_path: Path) -> None:
    vec_env, judged = (VecNormalize(make_sb3_vec_env("CartPole-v1", 2, seed=seed)) for seed in (5, 6))
    callback = EvalCallback(judged, n_eval_episodes=3, eval_freq=40, log_path=str(tmp_path), verbose=0)
    PPO("MlpPolicy", vec_env, n_steps=40, batch_size=40, n_epochs=1, policy_kwargs=small()).learn(160, callback)
    assert np.load(tmp_path / "evaluations.npz")["results"].shape == (2, 3)
    vec_env.close()
    judged.close()


@pytest.mark.parametrize("backend", PYTHONS)
def test_masked_actions(backend: str) -> None:
    contrib = pytest.importorskip("sb3_contrib")

    def train(vec_env: VecEnv) -> Any:
        model = contrib.MaskablePPO(
            "MultiInputPolicy", vec_env, n_steps=8, batch_size=8, n_epochs=1, seed=3, policy_kwargs=small()
        )
        return model.learn(64)

    ours = make_sb3_vec_env(Masked, 2, seed=5, backend=backend)
    assert ours.has_attr("action_masks")
    assert_same_weights(train, ours, make_vec_env(Masked, 2, seed=5))


QUICK_START = """
import gymnasium as gym

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

# Parallel environments
vec_env = make_vec_env("CartPole-v1", n_envs=4)

model = PPO("MlpPolicy", vec_env, n_steps=16, verbose=0)
model.learn(total_timesteps=64)
model.save("ppo_cartpole")

del model # remove to demonstrate saving and loading

model = PPO.load("ppo_cartpole")

obs = vec_env.reset()
for _ in range(10):
    action, _states = model.predict(obs)
    obs, rewards, dones, info = vec_env.step(action)
    vec_env.render("rgb_array")
"""
"""As in Stable-Baselines3's documentation, but for fewer steps, an end, and no window."""


def test_their_quick_start_runs_with_the_import_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = "from stable_baselines3.common.env_util import make_vec_env"
    ours = "from envfleet.adapters.sb3 import make_sb3_vec_env as make_vec_env"
    assert theirs in QUICK_START
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(QUICK_START.replace(theirs, ours), names)
    assert type(names["vec_env"]).__name__ == "FleetVecEnv"
    assert names["obs"].shape == (4, 4)
    names["vec_env"].close()
