"""A program as users write it: type checkers must have nothing to say about it (see `make check`, `make pyright`)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

import envfleet
from envfleet import (
    AsyncVectorEnv,
    AutoresetMode,
    Distribution,
    FleetVectorEnv,
    NativeVectorEnv,
    SyncVectorEnv,
    make_vec,
    uniform,
)
from envfleet.backends import Backend, BackendName, from_functions, register
from envfleet.train import A2CConfig, Agent, PPOConfig, evaluate, load_agent, register_logger, train
from envfleet.typing import EnvReference, StepResult
from envfleet.wrappers import NormalizeObservation, RecordEpisodeStatistics


def make_env() -> gymnasium.Env[Any, Any]:
    """One environment."""
    return gymnasium.make("CartPole-v1")


def random_steps(envs: gymnasium.vector.VectorEnv[Any, Any, Any], steps: int) -> float:
    """Any Gymnasium vector environment will do."""
    observations, _ = envs.reset(seed=0)
    total = 0.0
    for _ in range(steps):
        observations, rewards, terminated, truncated, _ = envs.step(envs.action_space.sample())
        total += float(rewards[~(terminated | truncated)].sum())
    return total + float(observations.sum())


def fleets() -> None:
    """Each way to make one."""
    with make_vec("CartPole-v1", num_envs=8, backend="process", autoreset_mode="SAME_STEP") as envs:
        random_steps(RecordEpisodeStatistics(NormalizeObservation(envs)), 10)
        rewards: npt.NDArray[np.float64] = envs.step(np.zeros(8, np.int64))[1]
        print(envs.plan, envs.parameters, rewards.mean(), envs.get_attr("gravity")[0])
    for fleet in (
        SyncVectorEnv([make_env] * 2),
        AsyncVectorEnv([make_env] * 2, autoreset_mode=AutoresetMode.NEXT_STEP),
    ):
        fleet.async_reset(seed=0)
        *_, infos = fleet.recv()
        fleet.send(np.zeros(len(infos["env_id"]), np.int64), infos["env_id"])
        fleet.close(timeout=1.0)
    for native in (NativeVectorEnv("CartPole-v1", 4), make_vec("CartPole-v1", 4, backend="native")):
        native.set_state(0, native.get_state(1))
    with make_vec("LunarLander-v3", 4, randomize={"gravity": uniform(-11.0, -9.0)}, randomize_seed=0) as landers:
        print(landers.parameters)
    mine = register(Backend("mine", from_functions(SyncVectorEnv), "this thread"))
    print(first_of(make_env, mine, {})[1].dtype, envfleet.train.PPOConfig("CartPole-v1").backend)


def first_of(what: EnvReference, backend: BackendName, randomize: dict[str, Distribution]) -> StepResult:
    """The first results, whoever they come from."""
    fleet: FleetVectorEnv = make_vec(what, 4, backend, first_ready=2, randomize=randomize, on_failure="restart")
    with fleet:
        fleet.async_reset(seed=0)
        return fleet.recv()


def training() -> Agent:
    """A run, its score, its agent."""
    result = train(PPOConfig("CartPole-v1", total_steps=10_000, num_envs=4), progress=False)
    own = train(PPOConfig(make_env, total_steps=10_000), progress=False)
    print(own.agent.config.env_id.startswith("__main__"), load_agent(own.run_dir, env=make_env).config)
    print(evaluate(result.agent, episodes=10).mean_return, A2CConfig("CartPole-v1").num_envs)
    register_logger("mine", lambda run: NotImplemented)
    actions: npt.NDArray[Any] = load_agent(result.run_dir).act(np.zeros((1, 4), np.float32))
    print(actions)
    return result.agent


if __name__ == "__main__":
    print(envfleet.__version__)
    fleets()
    training()
