from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from envfleet import choice, normal, uniform
from envfleet.train.algorithms.registry import ALGORITHMS, config_class, config_from_dict
from envfleet.train.config import (
    A2CConfig,
    DQNConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
    TrainConfig,
    config_to_dict,
)

EVERY = pytest.mark.parametrize("algo", list(ALGORITHMS))


@EVERY
def test_a_config_survives_json(algo: str) -> None:
    config = config_class(algo)(
        "LunarLander-v3",
        num_envs=3,
        seed=7,
        env_kwargs={"enable_wind": True, "names": ["a", None], "deep": {"x": 0.1}},
        randomize={
            "gravity": normal(-10, 1, clip=(-11.99, -0.01)),
            "wind_power": uniform(0, 20),
            "render": choice([1, "two", None]),
        },
        hidden_sizes=(5, 6, 7),
        activation="relu",
        gamma=0.5,
    )
    plain = json.loads(json.dumps(config_to_dict(config)))
    assert config_from_dict(algo, plain) == config


@EVERY
def test_settings_left_out_have_their_defaults(algo: str) -> None:
    assert config_from_dict(algo, {"env_id": "CartPole-v1"}) == config_class(algo)("CartPole-v1")


@EVERY
def test_a_run_of_before_there_was_a_choice_goes_on_with_parameters_drawn_once(algo: str) -> None:
    plain = config_to_dict(config_class(algo)("Pendulum-v1", randomize={"g": uniform(8, 12)}))
    assert plain.pop("randomize_on") == "reset"
    assert config_from_dict(algo, plain).randomize_on == "make"


@EVERY
def test_a_run_of_before_there_was_a_choice_goes_on_with_rewards_as_they_were(algo: str) -> None:
    plain = config_to_dict(config_class(algo)("CartPole-v1", reward_scale=0.01))
    assert plain.pop("normalize_rewards") is True
    config = config_from_dict(algo, plain)
    assert (config.normalize_rewards, config.reward_scale) == (False, 0.01)


@EVERY
def test_configs_are_frozen_and_take_names_only(algo: str) -> None:
    config = config_class(algo)("CartPole-v1")
    assert config.algo == algo
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        config_class(algo)("CartPole-v1", 4)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="algo must be one of a2c, ppo, sac, td3, dqn, got 'rainbow'"):
        config_from_dict("rainbow", {})
    with pytest.raises(ValueError, match="A2CConfig has no setting clip_range, speed; it has activation, actor_lr, "):
        config_from_dict("a2c", {"env_id": "CartPole-v1", "speed": 1, "clip_range": 0.2})


@pytest.mark.parametrize(
    ("kind", "name", "value", "wanted"),
    [
        (A2CConfig, "num_envs", 0, "an integer of at least 1"),
        (A2CConfig, "num_envs", 2.0, "an integer of at least 1"),
        (A2CConfig, "num_envs", True, "an integer of at least 1"),
        (A2CConfig, "total_steps", 1e6, "an integer of at least 1"),
        (A2CConfig, "rollout_steps", -1, "an integer of at least 1"),
        (A2CConfig, "critic_updates", 0, "an integer of at least 1"),
        (PPOConfig, "epochs", 0, "an integer of at least 1"),
        (PPOConfig, "minibatch_size", 0, "an integer of at least 1"),
        (SACConfig, "batch_size", 0, "an integer of at least 1"),
        (SACConfig, "buffer_size", 0, "an integer of at least 1"),
        (A2CConfig, "seed", -1, "an integer of 0 or more"),
        (A2CConfig, "seed", 0.5, "an integer of 0 or more"),
        (A2CConfig, "seed", None, "an integer of 0 or more"),
        (A2CConfig, "reseed_every", -1, "an integer of 0 or more"),
        (A2CConfig, "torch_threads", -1, "an integer of 0 or more"),
        (SACConfig, "learning_starts", -1, "an integer of 0 or more"),
        (SACConfig, "noise_correlation", -0.1, "a number from 0 to below 1"),
        (SACConfig, "noise_correlation", 1.0, "a number from 0 to below 1"),
        (A2CConfig, "entropy_coef", -0.1, "a number, 0 or more"),
        (PPOConfig, "target_kl", -0.1, "a number, 0 or more"),
        (A2CConfig, "max_grad_norm", float("nan"), "a number, 0 or more"),
        (A2CConfig, "actor_lr", 0.0, "a number greater than 0"),
        (A2CConfig, "critic_lr", "fast", "a number greater than 0"),
        (SACConfig, "temperature_lr", float("inf"), "a number greater than 0"),
        (PPOConfig, "clip_range", 0, "a number greater than 0"),
        (A2CConfig, "reward_scale", 0, "a number greater than 0"),
        (SACConfig, "updates_per_step", 0, "a number greater than 0"),
        (A2CConfig, "gamma", 1.01, "a number between 0 and 1"),
        (PPOConfig, "gae_lambda", -0.01, "a number between 0 and 1"),
        (SACConfig, "tau", 2, "a number between 0 and 1"),
        (TD3Config, "policy_delay", 0, "an integer of at least 1"),
        (TD3Config, "exploration_noise", 0.0, "a number greater than 0"),
        (TD3Config, "target_noise", -0.1, "a number, 0 or more"),
        (TD3Config, "target_noise_clip", -0.1, "a number, 0 or more"),
        (DQNConfig, "double", 1, "True or False"),
        (DQNConfig, "dueling", "yes", "True or False"),
        (DQNConfig, "priority_exponent", 1.5, "a number between 0 and 1"),
        (DQNConfig, "priority_correction", -1, "a number between 0 and 1"),
        (DQNConfig, "exploration_share", 1.1, "a number between 0 and 1"),
        (DQNConfig, "final_epsilon", 2, "a number between 0 and 1"),
        (DQNConfig, "learning_rate", 0, "a number greater than 0"),
        (A2CConfig, "backend", "thread", "auto, native, sync, process, ray or jax"),
        (A2CConfig, "activation", "gelu", "tanh or relu"),
        (A2CConfig, "hidden_sizes", (64, 0), "a tuple of integers of at least 1"),
        (A2CConfig, "hidden_sizes", [64, 64], "a tuple of integers of at least 1"),
        (A2CConfig, "randomize_on", "step", "reset or make"),
        (A2CConfig, "hidden_sizes", 64, "a tuple of integers of at least 1"),
        (A2CConfig, "env_kwargs", {"f": print}, "what JSON can hold, with lists instead of tuples"),
        (A2CConfig, "env_kwargs", {"size": (3, 4)}, "what JSON can hold, with lists instead of tuples"),
        (A2CConfig, "env_kwargs", {"size": np.float32(3)}, "what JSON can hold, with lists instead of tuples"),
    ],
)
def test_values_no_run_could_use_are_refused(kind: type[TrainConfig], name: str, value: Any, wanted: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be ") as caught:
        kind("CartPole-v1", **{name: value})
    assert str(caught.value) == f"{kind.__name__}: {name} must be {wanted}, got {value!r}."


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"num_envs must be .*; gamma must be .*; gravity cannot be both randomised"):
        PPOConfig(
            "LunarLander-v3",
            num_envs=0,
            gamma=2,
            env_kwargs={"gravity": -9.8},
            randomize={"gravity": uniform(-10, -9)},
        )
