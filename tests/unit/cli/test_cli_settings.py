"""How the arguments of `envfleet train` become a configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from command_line import Run, flat

from envfleet import choice, normal, uniform
from envfleet.cli.settings import RunOptions, parse_request
from envfleet.scenarios import PRESETS as RANDOMIZE_PRESETS
from envfleet.train import PPOConfig, SACConfig
from envfleet.train.algorithms.presets import BEST_ALGO, PRESETS, best_algo, preset
from envfleet.train.algorithms.registry import ALGORITHMS, config_class


@pytest.mark.parametrize("algo", list(ALGORITHMS))
def test_the_defaults_are_those_of_the_configuration(algo: str) -> None:
    request = parse_request(["Taxi-v4", "--algo", algo])
    assert request.config == config_class(algo)("Taxi-v4")
    assert request.run_dir is None
    assert request.options == RunOptions()


@pytest.mark.parametrize(("env_id", "algo"), [*BEST_ALGO.items(), ("Taxi-v4", "ppo")])
def test_an_environment_gets_the_algorithm_that_does_best_there(env_id: str, algo: str) -> None:
    assert best_algo(env_id) == algo
    assert parse_request([env_id]).config == preset(env_id, algo)
    assert parse_request(["--seed", "3", env_id]).config == dataclasses.replace(preset(env_id, algo), seed=3)


def test_what_does_best_has_a_preset() -> None:
    assert set(BEST_ALGO.items()) <= set(PRESETS)
    assert {env_id for env_id, _ in PRESETS} == set(BEST_ALGO)


@pytest.mark.parametrize(("env_id", "algo"), PRESETS)
def test_an_environments_preset_gives_the_defaults(env_id: str, algo: str) -> None:
    assert parse_request([env_id, f"--algo={algo}"]).config == preset(env_id, algo)
    assert parse_request(["--algo", algo, "--seed", "3", env_id]).config == dataclasses.replace(
        preset(env_id, algo), seed=3
    )


def test_a_preset_is_only_taken_for_the_environment() -> None:
    request = parse_request(["Taxi-v4", "--run-dir", "Pendulum-v1"])
    assert request.config == PPOConfig("Taxi-v4")
    assert request.run_dir == Path("Pendulum-v1")


def test_what_is_given_goes_before_the_preset() -> None:
    config = parse_request(["CartPole-v1", "--total-steps", "5000"]).config
    assert config == dataclasses.replace(preset("CartPole-v1", "ppo"), total_steps=5000)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--total-steps", "300_000"], {"total_steps": 300_000}),
        (["--total-steps", "3e5"], {"total_steps": 300_000}),
        (["--num-envs=16", "--backend", "process"], {"num_envs": 16, "backend": "process"}),
        (["--hidden-sizes", "32", "16"], {"hidden_sizes": (32, 16)}),
        (["--no-anneal", "--normalize-observations"], {"anneal": False, "normalize_observations": True}),
        (["--normalize-rewards", "--reward-scale", "2"], {"normalize_rewards": True, "reward_scale": 2.0}),
        (["--rollout_steps", "7", "--actor-lr", "1e-4"], {"rollout_steps": 7, "actor_lr": 1e-4}),
        (
            ["--env-kwargs", "gravity=-5", "enable_wind=True", "name=a=b", "ends=[1, 2]", "--seed", "3"],
            {"env_kwargs": {"gravity": -5, "enable_wind": True, "name": "a=b", "ends": [1, 2]}, "seed": 3},
        ),
        (
            ["--randomize", "gravity=normal(-10,1,-11.99,-0.01)", "wind_power=uniform(5, 20)"],
            {"randomize": {"gravity": normal(-10, 1, clip=(-11.99, -0.01)), "wind_power": uniform(5, 20)}},
        ),
        (["--randomize", "lunar-lander"], {"randomize": RANDOMIZE_PRESETS["lunar-lander"]}),
        (["--randomize-on", "make"], {"randomize_on": "make"}),
        (
            ["--randomize", "lunar-lander", "enable_wind=choice(True)"],
            {"randomize": {**RANDOMIZE_PRESETS["lunar-lander"], "enable_wind": choice([True])}},
        ),
    ],
)
def test_settings_are_read(argv: list[str], expected: dict[str, object]) -> None:
    config = parse_request(["LunarLander-v3", *argv]).config
    assert config == dataclasses.replace(preset("LunarLander-v3", "ppo"), **expected)


def test_settings_of_one_algorithm_alone() -> None:
    config = parse_request(["X-v0", "--algo", "ppo", "--epochs", "3"]).config
    assert config == PPOConfig("X-v0", epochs=3)
    config = parse_request(["X-v0", "--algo", "sac", "--target-entropy", "-2.5"]).config
    assert config == SACConfig("X-v0", target_entropy=-2.5)


def test_options_beside_the_configuration() -> None:
    argv = ["--run-dir", "here", "--no-showcase", "--wandb", "--init-from", "there", "--seeds", "0", "7"]
    request = parse_request(["X-v0", *argv])
    assert (request.run_dir, request.init_from, request.seeds) == (Path("here"), Path("there"), (0, 7))
    assert request.options == RunOptions(showcase=False, wandb=True)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], {}),
        (["--on-failure", "restart", "--step-timeout", "2.5"], {"on_failure": "restart", "step_timeout": 2.5}),
        (
            ["--num-workers", "3", "--max-restarts", "0", "--check-nan"],
            {"num_workers": 3, "max_restarts": 0, "check_nan": True},
        ),
        (["--vector-kwargs", "context=spawn", "max_restarts=None"], {"context": "spawn", "max_restarts": None}),
    ],
)
def test_the_engine_gets_what_is_given_and_nothing_else(argv: list[str], expected: dict[str, object]) -> None:
    assert parse_request(["X-v0", *argv]).config.vector_kwargs == expected


def test_a_seed_given_twice_is_refused(envfleet: Run) -> None:
    code, _, errors = envfleet("train", "CartPole-v1", "--seeds", "1", "1")
    assert code == 2
    assert "--seeds must be whole numbers of 0 or more, each once, got 1 1." in errors


@pytest.mark.parametrize("algo", list(ALGORITHMS))
def test_help_lists_every_setting_with_its_meaning_and_default(
    envfleet: Run, algo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # where it is wider, groups stand side by side
    code, output, errors = envfleet("train", "--algo", algo, "--help")
    text = flat(output)
    assert code == 0
    assert not errors
    assert "ENV the environment: a registered id, MODULE:ID, or FILE.py:CLASS." in text
    for entry in dataclasses.fields(config_class(algo)):
        if entry.name != "env_id":
            assert f"--{entry.name.replace('_', '-')}" in text
    for group in ("run", "training", "evaluation", "environment", "engine", "network", algo):
        assert f"{group} options" in text
    defaults = config_class(algo)("X")
    assert f"--gamma FLOAT discount factor. (default: {defaults.gamma})" in text
    assert f"environment steps to train for, over all copies together. (default: {defaults.total_steps:_})" in text
    assert "--seed INT fixes everything random: the environments, the initial weights and the actions drawn." in text
    assert "--resume RUN" in text
    assert "--no-showcase make no video" in text
    # Documented in several lines, one of which would begin anew if line breaks were kept.
    assert "A stopped run is resumed by replaying the actions since then" in text


def test_help_shows_the_defaults_that_would_be_used(envfleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # where it is wider, groups stand side by side
    _, output, _ = envfleet("train", "CartPole-v1", "--algo", "ppo", "--help")
    text = flat(output)
    assert "The defaults are those that suit CartPole-v1." in text
    assert f"together. (default: {preset('CartPole-v1', 'ppo').total_steps:_})" in text
    assert "--clip-range" in text
    assert "ENV the environment: a registered id, MODULE:ID, or FILE.py:CLASS." in text


def test_help_without_arguments_says_how_to_see_the_other_algorithms(envfleet: Run) -> None:
    _, output, _ = envfleet("train", "-h")
    assert (
        "Shown are the settings of ppo; for the others add --algo a2c, --algo sac, --algo td3 or --algo dqn."
        in flat(output)
    )
    assert "suit" not in output


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["X-v0", "--num-env", "3"], "--num-envs"),
        (["X-v0", "--num-envs", "3a"], "expected a whole number, such as 300000, 300_000 or 3e5, got '3a'"),
        (["X-v0", "--num-envs", "2.5"], "expected a whole number"),
        (["X-v0", "--num-envs", "inf"], "expected a whole number"),
        (["X-v0", "--gamma", "much"], "--gamma"),
        (["X-v0", "--algo", "rainbow"], "'a2c', 'ppo', 'sac', 'td3', 'dqn'"),
        (["X-v0", "--critic-updates", "3"], "--critic-updates"),
        (["X-v0", "Y-v0"], "Y-v0"),
        ([], "ENV"),
        (["X-v0", "--env-kwargs", "gravity"], "expected NAME=VALUE, such as gravity=-5"),
        (["X-v0", "--env-kwargs", "a=1", "a=2"], "a is given twice, as 1 and by 'a=2'"),
        (["X-v0", "--randomize", "gravity=normla(1,2)"], "did you mean 'normal'?"),
        (["X-v0", "--randomize", "a=uniform(1,2)", "--randomize", "b=uniform(1,2)"], "--randomize is given twice"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(envfleet: Run, argv: list[str], expected: str) -> None:
    code, output, errors = envfleet("train", *argv)
    assert code == 2
    assert not output
    assert expected in flat(errors)
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["X-v0", "--num-envs", "0"], "num_envs must be an integer of at least 1, got 0"),
        (["X-v0", "--gamma", "1.5"], "gamma must be a number between 0 and 1, got 1.5"),
        (["CartPol-v1"], "There is no environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        (["no_such_module:X-v0"], "There is no module 'no_such_module' to import"),
        (["LunarLander-v3", "--env-kwargs", "graviti=3"], "unexpected keyword argument 'graviti'"),
        (["LunarLander-v3", "--env-kwargs", "gravity=3"], "gravity (current value: 3) must be between -12 and 0"),
        (["LunarLander-v3", "--randomize", "graviti=uniform(-9,-8)"], "(did you mean 'gravity'?)"),
        (["CartPole-v1", "--algo", "sac"], "SAC needs continuous actions"),
        (["CartPole-v1", "--algo", "td3"], "TD3 needs continuous actions"),
        (["Pendulum-v1", "--algo", "dqn"], "DQN needs actions that are one choice"),
        (["CartPole-v1", "--total-steps", "100"], "give at least 2560"),
        (["CartPole-v1", "--device", "abacus"], "abacus"),
    ],
)
@pytest.mark.usefixtures("box2d")
def test_what_cannot_be_trained_is_refused_in_one_sentence(
    envfleet: Run, tmp_path: Path, argv: list[str], expected: str
) -> None:
    folder = tmp_path / "run"
    code, _, errors = envfleet("train", *argv, "--run-dir", folder)
    assert code == 1
    assert errors.startswith("envfleet: ")
    assert expected in errors
    assert errors.count("\n") == 1
    assert not folder.exists()
