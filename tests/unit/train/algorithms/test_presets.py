from __future__ import annotations

import dataclasses

import pytest

from envfleet._single import spec_of
from envfleet.device.families import FAMILIES
from envfleet.train.algorithms.presets import PRESETS, preset, preset_changes
from envfleet.train.algorithms.registry import ALGORITHMS, config_class


@pytest.mark.parametrize(("env_id", "algo"), PRESETS)
def test_a_preset_changes_what_it_says_and_nothing_else(env_id: str, algo: str) -> None:
    changes = preset_changes(env_id, algo)
    defaults = config_class(algo)(env_id)
    assert changes
    assert preset(env_id, algo) == dataclasses.replace(defaults, **changes)
    assert all(getattr(defaults, name) != value for name, value in changes.items()), "a change that changes nothing"


@pytest.mark.parametrize(("env_id", "algo"), PRESETS)
def test_presets_are_for_environments_that_exist(env_id: str, algo: str) -> None:
    family, colon, _ = env_id.partition(":")
    if colon:  # other libraries' ids are tested where those are: make interop
        assert family in {each.name for each in FAMILIES}
        return
    pytest.importorskip("ale_py" if env_id.startswith("ALE/") else "gymnasium")
    assert spec_of(env_id).id == env_id


@pytest.mark.parametrize("algo", list(ALGORITHMS))
def test_an_environment_without_a_preset_has_the_defaults(algo: str) -> None:
    assert preset("Taxi-v4", algo) == config_class(algo)("Taxi-v4")
    assert preset_changes("Taxi-v4", algo) == {}


@pytest.mark.parametrize(
    ("env_id", "algo", "reward_scale"),
    [
        ("LunarLander-v3", "a2c", 0.01),
        ("LunarLander-v3", "ppo", 0.01),
        ("LunarLanderContinuous-v3", "sac", 0.1),
        ("LunarLanderContinuous-v3", "ppo", 0.01),
        ("CartPole-v1", "a2c", 0.01),
        ("CartPole-v1", "ppo", 0.01),
        ("Pendulum-v1", "sac", 1.0),
        ("CartPole-v1", "dqn", 0.01),
        ("Pendulum-v1", "td3", 0.1),
    ],
)
def test_where_settings_are_tuned_rewards_are_scaled_as_ever(env_id: str, algo: str, reward_scale: float) -> None:
    config = preset(env_id, algo)
    assert (config.normalize_observations, config.normalize_rewards) == (False, False)
    assert config.reward_scale == reward_scale


@pytest.mark.parametrize("algo", list(ALGORITHMS))
def test_elsewhere_their_scale_is_learnt(algo: str) -> None:
    config = preset("Taxi-v4", algo)
    assert config.normalize_rewards
    assert config.normalize_observations == (algo in ("a2c", "ppo"))
    assert config.reward_scale == (10.0 if algo == "sac" else 1.0)


def test_an_unknown_algorithm_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="algo must be one of a2c, ppo, sac, td3, dqn, got 'rainbow'"):
        preset("CartPole-v1", "rainbow")


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        PRESETS["X-v0", "a2c"] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        preset_changes("X-v0", "a2c")["seed"] = 3  # type: ignore[index]
