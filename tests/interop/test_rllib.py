"""RLlib trains on fleets as on Gymnasium's vector environments: the same weights, to the bit."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import ray
from coming_from import run_block, scripts_of
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune import register_env

import envfleet
from envfleet.adapters.rllib import creator

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Overriding environment rllib:UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(300),
]
BACKENDS = ["sync", "process", "native"]


@pytest.fixture(scope="module", autouse=True)
def _ray() -> Iterator[None]:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 * 2**20,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


def config_for(env: str, mode: str, num_envs: int = 4, runners: int = 0) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=num_envs, gym_env_vectorize_mode=mode)
        .training(train_batch_size=256, minibatch_size=64, num_epochs=2)
        .debugging(seed=3)
    )


def trained(config: PPOConfig, iterations: int = 3) -> tuple[dict[str, Any], float]:
    """The weights after some iterations, and the mean return of the last."""
    algo = config.build_algo()
    for _ in range(iterations):
        result = algo.train()
    weights = {name: np.asarray(value) for name, value in algo.get_weights()["default_policy"].items()}
    algo.stop()
    return weights, result["env_runners"]["episode_return_mean"]


def on_fleet(make: Any, **settings: Any) -> PPOConfig:
    register_env("fleet", make)
    return config_for("fleet", "vector_entry_point", **settings)


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.fixture(scope="module")
def theirs() -> tuple[dict[str, Any], float]:
    """PPO on Gymnasium's SyncVectorEnv, which is RLlib's own."""
    return trained(config_for("CartPole-v1", "sync"))


def test_this_is_the_gymnasium_that_rllib_pins() -> None:
    assert gymnasium.__version__ == "1.2.2"


@pytest.mark.parametrize("backend", BACKENDS)
def test_ppo_ends_with_the_same_weights(backend: str, theirs: tuple[dict[str, Any], float]) -> None:
    weights, mean_return = trained(on_fleet(creator("CartPole-v1", backend)))
    assert mean_return == theirs[1]
    assert_same(weights, theirs[0])


def test_the_mode_matters(theirs: tuple[dict[str, Any], float]) -> None:
    """What the adapter refuses would be accepted by RLlib, and end with other weights."""
    weights, _ = trained(
        on_fleet(lambda context: envfleet.make_vec("CartPole-v1", context["num_envs"], autoreset_mode="SAME_STEP"))
    )
    assert any((weights[name] != value).any() for name, value in theirs[0].items())


def test_in_an_env_runner_that_is_an_actor() -> None:
    """The creator goes there by Ray's pickling."""
    theirs, _ = trained(config_for("CartPole-v1", "sync", runners=1), iterations=2)
    ours, _ = trained(on_fleet(creator("CartPole-v1", "native"), runners=1), iterations=2)
    assert_same(ours, theirs)


def test_the_env_config_reaches_the_environments() -> None:
    config = on_fleet(creator("Pendulum-v1", "sync", g=1.0)).environment(env_config={"g": 2.5})
    runner = SingleAgentEnvRunner(config=config)
    assert runner.env.unwrapped.get_attr("g") == (2.5,) * 4
    assert runner.env.unwrapped.autoreset_mode is gymnasium.vector.AutoresetMode.NEXT_STEP
    runner.stop()


class Fragile(gymnasium.Env[Any, Any]):
    """Crashes in the third step of the environment with seed 4."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    seed = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seed = self.seed if seed is None else seed
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.seed == 4 and self.steps == 3:
            raise OSError("the simulator has crashed")
        return np.full(1, self.steps % 9, np.float32), 1.0, False, self.steps == 8, {}


def test_one_environment_is_made_again_where_rllib_makes_all_again() -> None:
    config = on_fleet(creator(Fragile, "sync", on_failure="restart"), num_envs=3).debugging(seed=3)
    runner = SingleAgentEnvRunner(config=config)
    fleet = runner.env.unwrapped
    episodes = runner.sample(num_timesteps=40, random_actions=True)
    assert runner.env.unwrapped is fleet
    seen = [episode.get_observations()[:, 0].tolist() for episode in episodes]
    assert seen.count([0, 1, 2, 2]) == 1  # cut short, with the last observation that there was
    assert all(set(np.diff(each)) == {1} for each in seen if each != [0, 1, 2, 2])
    assert sum(episode.is_truncated for episode in episodes) > 3
    runner.stop()


def test_a_single_environment_is_refused() -> None:
    runner_config = config_for("fleet", "sync")
    register_env("fleet", creator("CartPole-v1"))
    with pytest.raises(ValueError, match='gym_env_vectorize_mode="vector_entry_point"'):
        SingleAgentEnvRunner(config=runner_config)


def test_creators_can_be_pickled() -> None:
    make = pickle.loads(pickle.dumps(creator("CartPole-v1", "native", {"threads": 1})))
    with make({"num_envs": 2}) as envs:
        assert envs.num_envs == 2


@pytest.mark.parametrize("block", scripts_of("rllib"))
def test_python_blocks_run(block: str, tmp_path: Path) -> None:
    run_block(block, tmp_path, may_warn=True, seconds=280)
