"""MuJoCo's environments in C++ against Gymnasium's: equal to the last bit, infos included."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode
from mujoco_names import NAMES
from oracle import Case, compare, in_modes_by_turns

from envfleet import make_vec

WHOLE_EPISODES = "ENVFLEET_WHOLE_EPISODES" in os.environ
WHOLE = [Case(f"{name}-v5", steps=1100) for name in NAMES]
SAMPLED = [Case(f"{name}-v5", {"max_episode_steps": 70}, steps=150) for name in NAMES]

_LEGS = {"forward_reward_weight": 2, "ctrl_cost_weight": 0.3, "reset_noise_scale": 0.02, "frame_skip": 3}
_ALL_POSITIONS = {"exclude_current_positions_from_observation": False}
_BODY_ONLY = {
    "include_cinert_in_observation": False,
    "include_cvel_in_observation": False,
    "include_qfrc_actuator_in_observation": False,
    "include_cfrc_ext_in_observation": False,
}
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "Ant": [
        {**_LEGS, **_ALL_POSITIONS, "include_cfrc_ext_in_observation": False, "healthy_reward": 3},
        {
            "main_body": "front_left_leg",
            "contact_cost_weight": 0.02,
            "contact_force_range": (-0.3, 0.2),
            "healthy_z_range": (0.3, 0.7),
        },
        {"terminate_when_unhealthy": False, "healthy_z_range": (0.5, 0.6)},
    ],
    "HalfCheetah": [{**_LEGS, **_ALL_POSITIONS}],
    "Hopper": [
        {**_LEGS, **_ALL_POSITIONS, "healthy_reward": 2},
        {"healthy_state_range": (-2, 2), "healthy_z_range": (0.5, 1.5), "healthy_angle_range": (-0.5, 0.4)},
        {"terminate_when_unhealthy": False},
    ],
    "Humanoid": [
        {**_LEGS, **_ALL_POSITIONS, **_BODY_ONLY, "healthy_reward": 2},
        {"contact_cost_weight": 1e-3, "contact_cost_range": (0.1, 3.0), "healthy_z_range": (1.1, 1.6)},
        {"include_cvel_in_observation": False, "terminate_when_unhealthy": False},
    ],
    "HumanoidStandup": [
        {**_ALL_POSITIONS, **_BODY_ONLY, "frame_skip": 2, "ctrl_cost_weight": 0.4, "reset_noise_scale": 0.1},
        {"impact_cost_weight": 1e-3, "impact_cost_range": (0.1, 3.0), "uph_cost_weight": 7},
    ],
    "InvertedDoublePendulum": [{"healthy_reward": 4, "reset_noise_scale": 0.3, "frame_skip": 2}],
    "InvertedPendulum": [{"reset_noise_scale": 0.05, "frame_skip": 5}],
    "Pusher": [
        {"reward_near_weight": 0.2, "reward_dist_weight": 0.7, "reward_control_weight": 0.4, "frame_skip": 2},
    ],
    "Reacher": [{"reward_dist_weight": 0.7, "reward_control_weight": 0.4, "frame_skip": 3}],
    "Swimmer": [{**_LEGS, **_ALL_POSITIONS}],
    "Walker2d": [
        {**_LEGS, **_ALL_POSITIONS, "healthy_reward": 2},
        {"healthy_z_range": (0.5, 1.5), "healthy_angle_range": (-0.5, 0.4), "terminate_when_unhealthy": False},
    ],
}
VARIED = [
    Case(f"{name}-v5", {"max_episode_steps": 40, **arguments}, 20 if WHOLE_EPISODES else 4, steps=100, ends=4)
    for name, several in ARGUMENTS.items()
    for arguments in several
]


@in_modes_by_turns(SAMPLED)
def test_every_number_is_gymnasiums(case: Case, mode: AutoresetMode) -> None:
    compare(case, mode)


@pytest.mark.slow
@pytest.mark.only_with("ENVFLEET_WHOLE_EPISODES")  # takes ten minutes: make oracle
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_every_number_of_whole_episodes_is_gymnasiums(case: Case, mode: AutoresetMode) -> None:
    compare(case, mode)


@pytest.mark.parametrize(
    "mode", list(AutoresetMode) if WHOLE_EPISODES else [AutoresetMode.SAME_STEP], ids=lambda mode: mode.value
)
@pytest.mark.parametrize("case", VARIED, ids=str)
def test_every_number_is_gymnasiums_with_other_arguments(case: Case, mode: AutoresetMode) -> None:
    compare(case, mode)


@pytest.mark.parametrize("name", NAMES)
def test_no_argument_was_left_out(name: str) -> None:
    entry_point = load_env_creator(str(gym.spec(f"{name}-v5").entry_point))
    arguments = {*inspect.signature(entry_point).parameters} - {"xml_file", "default_camera_config", "kwargs"}
    assert {argument for several in ARGUMENTS[name] for argument in several} == arguments


def test_every_number_is_gymnasiums_on_two_threads() -> None:
    compare(replace(SAMPLED[0], seeds=7, ends=7), AutoresetMode.NEXT_STEP, threads=2)


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    import gymnasium.envs.mujoco

    original = Path(gymnasium.envs.mujoco.__path__[0]) / "assets" / "half_cheetah.xml"
    heavier = tmp_path / "heavier.xml"
    heavier.write_text(original.read_text().replace('settotalmass="14"', 'settotalmass="20"'))
    arguments = {"xml_file": str(heavier), "max_episode_steps": 40}
    compare(Case("HalfCheetah-v5", arguments, seeds=4, steps=60, ends=4), AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_gymnasiums_default(name: str) -> None:
    theirs: Any = gym.make(f"{name}-v5").unwrapped
    with make_vec(f"{name}-v5", 2, "native") as envs:
        parameters = envs._pool.parameter_names()  # type: ignore[attr-defined]
        assert "frame_skip" in parameters
        for parameter in parameters:
            for value in envs.get_attr(parameter):
                np.testing.assert_array_equal(value, getattr(theirs, parameter))
