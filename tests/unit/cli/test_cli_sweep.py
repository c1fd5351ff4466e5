"""`envfleet sweep`: what it prints, what it refuses, and that its last line can be pasted."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest
from command_line import TINY, Run, flat

from envfleet import choice, normal
from envfleet.cli.settings import parse_request
from envfleet.cli.writing import train_arguments
from envfleet.train import A2CConfig, PPOConfig, SACConfig, TrainConfig, read_metrics, read_sweep
from envfleet.train.algorithms.presets import preset

SMALL = [*TINY, "--total-steps", "96", "--eval-episodes", "1", "--loggers"]


def last_command(output: str, heading: str) -> list[str]:
    """The words of the command below a heading, without the program's name."""
    return shlex.split(output.split(f"{heading}\n")[1].splitlines()[0])[1:]


def test_a_sweep_ends_with_a_command_that_trains_the_best_trial_again(envfleet: Run, tmp_path: Path) -> None:
    search = ["--search", "actor_lr", "gamma=uniform(0.9,0.99)", "hidden_sizes=choice((4,),(8,4))"]
    given = ["CartPole-v1", "--trials", "3", *SMALL, *search, "--sweep-dir", tmp_path / "sweep"]
    code, output, errors = envfleet("sweep", *given)
    assert (code, errors) == (0, "")
    result = read_sweep(tmp_path / "sweep")
    assert set(result.trials[0].settings) == {"actor_lr", "gamma", "hidden_sizes"}
    command = last_command(output, "To train with the best settings:")
    assert command[0] == "train"
    assert parse_request(command[1:]).config == result.best_config
    code, *_ = envfleet(*command, "--run-dir", tmp_path / "run", "--no-showcase", "--loggers")
    assert code == 0
    assert result.best is not None
    assert read_metrics(tmp_path / "run")["eval_return"][-1] == result.best.value


def test_a_sweep_goes_on_and_is_extended(envfleet: Run, tmp_path: Path) -> None:
    envfleet("sweep", "CartPole-v1", "--trials", "1", *SMALL, "--search", "gamma", "--sweep-dir", tmp_path / "sweep")
    code, output, _ = envfleet("sweep", "--resume", tmp_path / "sweep", "--trials", "2", "--loggers")
    assert code == 0
    assert "2 trials: 2 complete." in output
    code, _, errors = envfleet("sweep", "--resume", tmp_path / "sweep", "--algo", "ppo")
    assert code == 2
    assert "a sweep goes on with its own settings, so leave out --algo ppo" in errors


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--trials", "0"], "--trials must be 1 or more, got 0"),
        (["--parallel", "0"], "--parallel must be 1 or more, got 0"),
        (["--loggers", "tensorbord"], "tensorbord"),
        (["--search", "actor_lr=loguniform(0,1)"], "loguniform() needs low > 0"),
        (["--search", "actor_lr=uniform(1,0)"], "uniform() needs low <= high"),
        (["--search", "actor_lr=gauss(1,0)"], "there is no distribution 'gauss', only uniform, loguniform"),
        (["--search", "critic_updates"], "it is neither name=distribution nor a preset"),
        (["--search", "seed=choice(1,2)"], "seed must be the same for all trials"),
        (["--search", "gamma", "gamma=uniform(0,1)", "gamma=uniform(0,1)"], "gamma is given twice"),
        (["--search", "gamma", "--search", "actor_lr"], "--search is given twice; put everything behind one"),
        (["--search", "gamma=uniform(0,2)"], "gamma must be a number between 0 and 1, got 2.0"),
        (["--eval-episodes", "0"], "needs eval_episodes of at least 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(envfleet: Run, tmp_path: Path, given: list[str], says: str) -> None:
    code, _, errors = envfleet("sweep", "CartPole-v1", "--sweep-dir", tmp_path / "sweep", *given)
    assert code in (1, 2)
    assert says in flat(errors)
    assert not (tmp_path / "sweep").exists()


def test_the_help_text_names_what_is_searched(envfleet: Run) -> None:
    code, output, _ = envfleet("sweep", "--help")
    assert code == 0
    assert "SETTING=loguniform(1e-4,1e-2)" in flat(output)
    assert "(default: 20)" in flat(output)


@pytest.mark.parametrize(
    "config",
    [
        preset("LunarLander-v3", "a2c"),
        A2CConfig("CartPole-v1", hidden_sizes=(256,), normalize_observations=True, gamma=1e-05, stop_at_return=-1e-05),
        PPOConfig("LunarLander-v3", env_kwargs={"gravity": -5.5, "enable_wind": True}, info_metrics=("a", "b")),
        PPOConfig(
            "LunarLander-v3", randomize={"gravity": normal(-10, 1, clip=(-11.99, -0.01)), "b": choice(["a b", 1])}
        ),
        SACConfig("Pendulum-v1", target_entropy=-2.5, activation="tanh", anneal=False),
        A2CConfig("my_env.py:My Env", vector_kwargs={"on_failure": "restart", "num_workers": 2}, backend="process"),
    ],
)
def test_any_configuration_can_be_written_as_a_command(config: TrainConfig) -> None:
    words = shlex.split(train_arguments(config))
    assert words[:2] == ["train", config.env_id]
    assert dataclasses.asdict(parse_request(words[1:]).config) == dataclasses.asdict(config)
