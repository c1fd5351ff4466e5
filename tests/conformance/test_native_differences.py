"""Native environments that differ in their arguments: rows of one size, infos of the fleet's types, or a refusal."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from envfleet import NativeVectorEnv, _native, choice, make_vec
from envfleet.native import catalogue, mujoco
from envfleet.native.catalogue import UnsupportedError
from envfleet.testing import assert_same

pytestmark = pytest.mark.usefixtures("box2d")

# --- arguments that change what is observed -----------------------------------------------------------------

INCLUDED = {f"include_{what}_in_observation": True for what in ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")}
EXCLUDED = dict.fromkeys(INCLUDED, False)

SHAPING: dict[str, list[tuple[str, Any]]] = {
    "Ant-v5": [
        ("include_cfrc_ext_in_observation", False),
        ("exclude_current_positions_from_observation", False),
        ("xml_file", "half_cheetah.xml"),
        ("width", 10),
    ],
    "HumanoidStandup-v5": [("include_cvel_in_observation", False)],
    "Swimmer-v5": [("exclude_current_positions_from_observation", False)],
    "LunarLander-v3": [("continuous", True)],
    "FrozenLake-v1": [("desc", ["SFG"]), ("map_name", "8x8")],
    "CartPole-v1": [("render_mode", "rgb_array"), ("disable_env_checker", True)],
}


@pytest.mark.parametrize(
    ("env_id", "name", "value"), [(env_id, *each) for env_id, named in SHAPING.items() for each in named]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_argument_that_all_must_share_is_refused_wherever_it_stands(
    env_id: str, name: str, value: Any, place: int
) -> None:
    varied: list[dict[str, Any]] = [{}, {}, {}]
    varied[place] = {name: value}
    with pytest.raises(UnsupportedError, match=f"differ in '{name}', which environment {place} of {env_id}.*process"):
        NativeVectorEnv(env_id, 3, varied=varied)


@pytest.mark.parametrize("when", ["make", "reset"])
def test_the_same_when_they_are_drawn(when: str) -> None:
    drawn = {"include_cfrc_ext_in_observation": choice([True, False])}
    with pytest.raises(TypeError, match=r"differ in 'include_cfrc_ext_in_observation'.*observation_mode"):
        make_vec("Ant-v5", 2, "native", randomize=drawn, randomize_on=when)


def test_the_pool_itself_checks_the_size_of_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    # The guard behind the guard: whatever Python lets through, no row writes into its neighbour.
    monkeypatch.setattr("envfleet.native.env.check_varied", lambda *_: None)
    with pytest.raises(ValueError, match=r"environment 1: with these .* takes 2784 bytes.* 360"):
        NativeVectorEnv("Humanoid-v5", 3, env_kwargs=EXCLUDED, varied=[{}, INCLUDED, {}])
    with pytest.raises(ValueError, match="environment 2: with these parameters its observation takes 360 bytes"):
        NativeVectorEnv("Humanoid-v5", 3, env_kwargs=INCLUDED, varied=[{}, {}, EXCLUDED])


def test_and_that_of_every_planned_episode() -> None:
    with NativeVectorEnv("Ant-v5", 2) as envs:
        parameters = mujoco.Simulations(gymnasium.make("Ant-v5").unwrapped, [{}], 2).parameters[0]
        smaller = {**parameters, "_include_cfrc_ext_in_observation": False}
        with pytest.raises(ValueError, match="its observation takes 216 bytes, and the fleet's rows have 840"):
            envs._pool.plan_episode(0, smaller, 100, None)
        envs._pool.plan_episode(0, parameters, 100, None)


def spec_of(name: str) -> Any:
    """What is registered for a kind of environment; nothing for other names of one, and those for one's own."""
    specs = [spec for spec in gymnasium.registry.values() if spec.namespace is None and spec.id != "CartPole-v0"]
    return next((s for s in specs if (kind := catalogue.find(s)) is not None and kind.name == name), None)


@pytest.mark.parametrize("name", sorted(name for name in _native.kinds() if spec_of(name) is not None))
def test_every_argument_that_changes_a_space_is_among_those_that_all_share(name: str) -> None:
    """Tries the other value of each flag of each environment: whoever changes a space must be listed."""
    spec = spec_of(name)
    kind = catalogue.find(spec)
    assert kind is not None
    known = kind._known_arguments - {"render_mode"}
    usual = gymnasium.make(spec.id, disable_env_checker=True)
    flags = [
        name for name in known if any(word in name for word in ("include", "exclude", "is_", "continuous", "hard"))
    ]
    for flag in flags:
        for value in (True, False):
            env = gymnasium.make(spec.id, disable_env_checker=True, **{flag: value})
            same = env.observation_space == usual.observation_space and env.action_space == usual.action_space
            assert same or flag in kind.shaping, flag
            env.close()
    usual.close()


@pytest.mark.parametrize("limit", [0, -2, 2.5, "9", True])
def test_a_time_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="max_episode_steps of CartPole-v1 must be a positive integer"):
        NativeVectorEnv("CartPole-v1", 2, varied=[{}, {"max_episode_steps": limit}])


def test_an_impossible_argument_names_its_environment() -> None:
    with pytest.raises(ValueError, match="environment 1: gravity must be between -12 and 0"):
        NativeVectorEnv("LunarLander-v3", 3, varied=[{}, {"gravity": 5.0}, {}])


def test_arrays_that_are_not_of_doubles_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="whose qpos is no array of float64 in a row, but of float32"):
        mujoco._checked("qpos", np.zeros(3, np.float32))
    with pytest.raises(UnsupportedError, match="whose xpos"):
        mujoco._checked("xpos", np.zeros((4, 4))[:, ::2])


# --- infos whose type depends on arguments --------------------------------------------------------------------

MIXED = {"healthy_reward": choice([1, 1.5, 0, -2, 2.0])}
NUMBERS: dict[str, dict[str, Any]] = {
    "Ant-v5": {**MIXED, "forward_reward_weight": choice([1, 0.5]), "ctrl_cost_weight": choice([1, 0.5])},
    "Hopper-v5": {**MIXED, "forward_reward_weight": choice([2, 0.5]), "ctrl_cost_weight": choice([0, 0.5])},
    "Walker2d-v5": {**MIXED, "frame_skip": choice([1, 4])},
    "Humanoid-v5": {**MIXED, "ctrl_cost_weight": choice([1, 0.5]), "contact_cost_weight": choice([1, 0.5])},
    "InvertedDoublePendulum-v5": MIXED,
    "HalfCheetah-v5": {"forward_reward_weight": choice([1, 0.5]), "ctrl_cost_weight": choice([1, 0.5])},
    "HumanoidStandup-v5": {"impact_cost_weight": choice([1, 0.5]), "ctrl_cost_weight": choice([1, 0.5])},
    "Pusher-v5": {"reward_near_weight": choice([1, 0.5]), "reward_dist_weight": choice([1, 0.5])},
    "Reacher-v5": {"reward_control_weight": choice([1, 0.5]), "reward_dist_weight": choice([1, 0.5])},
    "Swimmer-v5": {"forward_reward_weight": choice([1, 0.5]), "ctrl_cost_weight": choice([1, 0.5])},
    "FrozenLake-v1": {"success_rate": choice([0.5, 1.0]), "is_slippery": choice([True, False])},
    "Taxi-v4": {"is_rainy": choice([True, False]), "rainy_probability": choice([0.5, 1.0])},
    "CliffWalking-v1": {"is_slippery": choice([True, False])},
}


def _assert_same_infos(ours: Any, theirs: Any, steps: int) -> None:
    ours.action_space.seed(1)
    assert_same(ours.reset(seed=3), theirs.reset(seed=3))
    for _ in range(steps):
        actions = ours.action_space.sample()
        assert_same(ours.step(actions), theirs.step(actions))


# Two stand for all that draw anew: making Python's environments again takes its time.
DRAWN_AT = [*((env_id, "make") for env_id in NUMBERS), ("Hopper-v5", "reset"), ("InvertedDoublePendulum-v5", "reset")]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP], ids=lambda mode: mode.value)
@pytest.mark.parametrize(("env_id", "when"), DRAWN_AT)
def test_infos_are_of_the_types_that_python_gives_them(env_id: str, when: str, mode: AutoresetMode) -> None:
    fleets = [
        make_vec(
            env_id,
            5,
            backend,
            {"autoreset_mode": mode},
            randomize={**NUMBERS[env_id], "max_episode_steps": choice([3, 4, 7])},
            randomize_seed=2,
            randomize_on=when,
        )
        for backend in ("native", "sync")
    ]
    with fleets[0] as ours, fleets[1] as theirs:
        assert type(ours) is NativeVectorEnv
        _assert_same_infos(ours, theirs, 12)


@pytest.mark.parametrize("first", [1, 1.5])
def test_the_type_is_the_fleets_not_that_of_the_first(first: float) -> None:
    other = 2.5 if isinstance(first, int) else 1
    with NativeVectorEnv("Hopper-v5", 2, varied=[{"healthy_reward": first}, {"healthy_reward": other}]) as envs:
        envs.reset(seed=1)
        *_, infos = envs.step(np.zeros((2, 3), np.float32))
    assert infos["reward_survive"].dtype == np.float64
    assert infos["reward_survive"].tolist() == [first, other]


def test_and_follows_what_is_set_later() -> None:
    with make_vec("Hopper-v5", 3, "native") as ours, make_vec("Hopper-v5", 3, "sync") as theirs:
        for values in (2, [1, 2, 3], [1, 2.5, 3], [1.0, 2.0, 3.0], -1):
            for envs in (ours, theirs):
                envs.set_attr("_healthy_reward", values)
            assert ours.get_attr("_healthy_reward") == theirs.get_attr("_healthy_reward")
            assert [type(each) for each in ours.get_attr("_healthy_reward")] == [
                type(each) for each in theirs.get_attr("_healthy_reward")
            ]
            _assert_same_infos(ours, theirs, 25)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_ctrl_cost_weight", np.float64(0.1)),
        ("_ctrl_cost_weight", np.float32(0.1)),
        ("_healthy_reward", np.float32(1.5)),
        ("_healthy_reward", np.int32(1)),
        ("_reset_noise_scale", -0.1),
        ("_reset_noise_scale", float("nan")),
    ],
)
def test_what_would_change_the_precision_is_refused_later_as_at_first(name: str, value: Any) -> None:
    with make_vec("Hopper-v5", 2, "native") as envs:
        before = envs.get_attr(name)
        with pytest.raises(TypeError, match=f"{name[1:]}="):
            envs.set_attr(name, value)
        assert envs.get_attr(name) == before
        envs.set_attr("_healthy_reward", list(np.array([1, 2])))
        assert envs.get_attr("_healthy_reward") == (1, 2)


def test_rows_received_alone_have_the_types_of_those_rows() -> None:
    varied = [{"healthy_reward": 1}, {"healthy_reward": 1.5}, {"healthy_reward": 2}]
    with NativeVectorEnv("Hopper-v5", 3, varied=varied) as envs:
        envs.reset(seed=1)
        for rows, dtype in (([0, 2], np.int64), ([1], np.float64), ([0, 1, 2], np.float64)):
            envs.send(np.zeros((len(rows), 3), np.float32), np.array(rows))
            envs.batch_size = len(rows)
            *_, infos = envs.recv()
            assert infos["reward_survive"].dtype == dtype


def test_an_integer_that_no_float_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="does not support healthy_reward=9007199254740993, an integer that no float"):
        make_vec("Hopper-v5", 1, "native", healthy_reward=2**53 + 1)
    with (
        make_vec("Hopper-v5", 1, "native") as envs,
        pytest.raises(TypeError, match="an integer that no float can hold"),
    ):
        envs.set_attr("_healthy_reward", 2**53 + 1)
