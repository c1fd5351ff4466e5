"""Environments that are classes, functions and files instead of registered ids; and wrong things in their place."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import envfleet
from envfleet._references import can_be_imported, folder_name, named
from envfleet.train import A2CConfig, PPOConfig, TrainConfig, evaluate, load_agent, resume, showcase, train
from envfleet.train.config import config_to_dict
from envfleet.train.folders.folder import RunFolder


class Patient(gymnasium.Env[Any, Any]):
    """Never ends by itself; has a time limit of its own under the name that Gymnasium's has."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, max_episode_steps: int = 0) -> None:
        self.limit, self.steps = max_episode_steps, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return 0, 1.0, False, self.steps == self.limit, {"limit": self.limit}


class Endless(Patient):
    """Has no time limit."""

    def __init__(self) -> None:
        super().__init__()


def length_of_an_episode(env: Any, **env_kwargs: Any) -> int:
    with envfleet.make_vec(env, 1, "sync", **env_kwargs) as envs:
        envs.reset(seed=0)
        return next(step for step in range(1, 100) if envs.step([0])[3][0])


def test_a_class_gets_gymnasiums_time_limit_unless_it_takes_one_itself() -> None:
    assert length_of_an_episode(Endless, max_episode_steps=3) == 3
    assert length_of_an_episode(lambda: Endless(), max_episode_steps=4) == 4
    assert length_of_an_episode(Patient, max_episode_steps=5) == 5
    with envfleet.make_vec(Endless, 1, "sync", max_episode_steps=-1) as envs:
        envs.reset()
        assert not any(envs.step([0])[3][0] for _ in range(50))


TINY: dict[str, Any] = {"num_envs": 2, "rollout_steps": 4, "total_steps": 16, "hidden_sizes": (4,), "backend": "sync"}


def test_an_evaluation_leaves_a_class_the_limit_it_was_trained_with(tmp_path: Path) -> None:
    agent = train(A2CConfig(partial(Patient, 7), **TINY), run_dir=tmp_path / "own", progress=False).agent
    assert evaluate(agent, episodes=2, backend="sync").lengths == (7, 7)
    assert evaluate(agent, episodes=2, backend="sync", max_steps=5).lengths == (5, 5)
    endless = train(
        A2CConfig(Endless, env_kwargs={"max_episode_steps": 6}, **TINY), run_dir=tmp_path / "given", progress=False
    ).agent
    found = evaluate(endless, episodes=2, backend="sync")
    assert (found.lengths, found.cut) == ((6, 6), 0)


def test_a_configuration_holds_a_class_as_a_text_that_brings_it_back() -> None:
    config = PPOConfig(CartPoleEnv)
    reference = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    assert config.env_id == reference == json.loads(json.dumps(config_to_dict(config)))["env_id"]
    assert type(config_to_dict(config)["env_id"]) is str
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config)), dataclasses.replace(config, seed=0)):
        assert other == config
        assert other.env_id.maker is CartPoleEnv
    assert PPOConfig(gymnasium.spec("CartPole-v1")) == PPOConfig("CartPole-v1")
    with envfleet.make_vec(reference, 2, "sync") as envs:
        assert isinstance(envs.envs[0].unwrapped, CartPoleEnv)


def test_an_imported_class_is_found_by_its_run_alone(tmp_path: Path) -> None:
    run = train(A2CConfig(CartPoleEnv, **TINY), run_dir=tmp_path / "run", progress=False).run_dir
    assert evaluate(run, episodes=1, backend="sync", max_steps=9).episodes == 1
    assert resume(run, progress=False).finished


def test_what_no_other_program_can_import_is_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make() -> Endless:
        return Endless()

    config = A2CConfig(make, env_kwargs={"max_episode_steps": 3}, **TINY)
    run = train(config, run_dir=tmp_path / "run", progress=False).run_dir
    with pytest.raises(gymnasium.error.NameNotFound, match=r"load_agent\(run, env=make\) or resume\(run, env=make\)"):
        load_agent(run)
    assert evaluate(load_agent(run, env=make), episodes=1, backend="sync").lengths == (3,)
    assert resume(run, env=make, progress=False).finished
    moved = run.rename(tmp_path / "moved")
    assert load_agent(moved, env=make).config.env_id.startswith(__name__)  # gives no other module to import


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("ALE/Pong-v5", "ALE-Pong-v5"),
        ("my_env:Grid-v0", "my_env-Grid-v0"),
        ("../envs/my_env.py:Grid", "my_env-Grid"),
        ("__main__:Grid", "Grid"),
        ("__main__:make.<locals>.Grid", "make.Grid"),
        ("__main__:<lambda>", "lambda"),
        ("..:..", "env"),
    ],
)
def test_folders_have_sensible_names(reference: str, name: str) -> None:
    assert folder_name(reference) == name


def test_only_what_a_module_has_by_that_name_can_be_imported() -> None:
    assert can_be_imported("CartPole-v1")
    assert can_be_imported(named(Endless))
    assert not can_be_imported(named(lambda: Endless()))
    assert not can_be_imported(named(type("Endless", (Endless,), {"__module__": __name__})))


def test_a_file_of_a_package_is_imported_as_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "board.py").write_text("SIZE = 3\n")
    (package / "grid.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\nfrom .board import SIZE\n\n\n"
        "def make():\n    return CartPoleEnv()\n"
    )
    monkeypatch.chdir(package)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with envfleet.make_vec("grid.py:make", 2, "process") as envs:
        envs.reset(seed=0)
    assert sys.modules["package_of_mine.grid"].SIZE == 3


CARTPOLE = gymnasium.make("CartPole-v1")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: PPOConfig("X-v0", n_envs=8),
            r"PPOConfig has no setting 'n_envs' \(did you mean 'num_envs'\?\); it has",
        ),
        (lambda: PPOConfig("X-v0", learning_rate=1), r"no setting 'learning_rate' \(did you mean 'actor_lr'\?\)"),
        (lambda: train(PPOConfig("X-v0"), runs_dir="x"), r"train has no argument 'runs_dir' \(did you mean 'run_dir'"),
        (lambda: evaluate("x", episode=1), r"evaluate has no argument 'episode' \(did you mean 'episodes'\?\)"),
        (lambda: train("CartPole-v1"), r"needs an A2CConfig.*got 'CartPole-v1': write train\(PPOConfig\('CartPole-v1'"),
        (lambda: train(PPOConfig), r"got the class PPOConfig: write train\(PPOConfig\(ENV\)\)"),
        (lambda: train(CartPoleEnv), r"write train\(PPOConfig\(CartPoleEnv\)\)"),
        (lambda: evaluate(PPOConfig), "expected an agent, such as train.* or the folder of a run, got <class"),
        (lambda: showcase(PPOConfig("X-v0"), path="a.mp4"), "expected an agent"),
        (lambda: PPOConfig(CARTPOLE), "is an environment that is made already.*give its class, CartPoleEnv, or a"),
        (lambda: envfleet.make_vec(CARTPOLE), "is an environment that is made already"),
        (lambda: PPOConfig(dict), r"dict is a class without step\(\) and reset\(\), so no gymnasium.Env"),
        (lambda: PPOConfig(3), "3 is no environment: expected a registered id"),
        (lambda: envfleet.make_vec(lambda: None, 2), "must make a gymnasium.Env, but it returned None"),
    ],
)
def test_a_wrong_thing_gets_a_sentence(call: Any, sentence: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=sentence):
        call()
    assert not list(tmp_path.iterdir())


def test_an_environment_is_no_run() -> None:
    with pytest.raises(FileNotFoundError, match="CartPole-v1 is an environment; expected the folder of a run"):
        evaluate("CartPole-v1")


def test_a_file_in_a_configuration_is_a_module_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    RunFolder(tmp_path).path.mkdir(exist_ok=True)
    config: TrainConfig = A2CConfig("../there/my_env.py:Grid")
    RunFolder(tmp_path / "run").path.mkdir()
    RunFolder(tmp_path / "run").create(config, custom_networks=False)
    assert load_refusal(tmp_path / "run") is None  # written here
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert load_refusal(moved) == "../there/my_env.py"


def load_refusal(run: Path) -> str | None:
    """The module that a run may not import; None if it may."""
    try:
        RunFolder(run).read_allowed_config(allow_import=False)
    except envfleet.errors.UntrustedRunError as error:
        return str(error).partition("executes it: ")[2].partition(" (env_id")[0]
    return None


WITHOUT_BOX2D = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("Box2D", "mujoco"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

if sys.argv[1] == "without":
    sys.meta_path.insert(0, Missing())
import hashlib
import envfleet

digest = hashlib.sha256()
randomize = {"randomize": {"gravity": envfleet.uniform(-11, -2)}, "randomize_seed": 1}
for env, arguments in (
    ("LunarLander-v3", randomize), ("LunarLander-v3", {"continuous": True}), ("BipedalWalker-v3", {})
):
    with envfleet.make_vec(env, 3, **arguments) as envs:
        shown = envs.single_observation_space, envs.single_action_space, envs.metadata, envs.plan
        digest.update(repr(shown).encode() + envs.single_observation_space.low.tobytes())
        envs.reset(seed=1)
        envs.action_space.seed(1)
        for _ in range(50):
            digest.update(envs.step(envs.action_space.sample())[0].tobytes())
print(digest.hexdigest())
for env in ("CarRacing-v3", "HalfCheetah-v5"):
    try:
        envfleet.make_vec(env, 2, "sync").close()
        print("made")
    except envfleet.errors.FleetError:
        raise
    except Exception as error:
        print(type(error).__name__, error)
        assert error.__cause__ is None and error.__suppress_context__
"""


def test_landers_and_walkers_need_no_box2d_of_python() -> None:
    """Same spaces, same numbers; where there is no way without a package, one sentence."""
    with_it, without = (
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", WITHOUT_BOX2D, how], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for how in ("with", "without")
    )
    assert with_it == [without[0], "made", "made"]
    assert without[1:] == [
        "DependencyNotInstalled CarRacing-v3 needs a package: Box2D is not installed; run",
        '    pip install "envfleet[envs]"',
        "DependencyNotInstalled HalfCheetah-v5 needs a package: MuJoCo is not installed; run",
        '    pip install "envfleet[envs]"',
    ]
