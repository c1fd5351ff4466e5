"""skrl trains on fleets as on Gymnasium's vector environments: the same weights, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from coming_from import run_block, scripts_of
from gymnasium.vector import AutoresetMode
from skrl.agents.torch.ppo import PPO
from skrl.agents.torch.sac import SAC
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed

import envfleet
from envfleet.adapters.skrl import with_final_observations

BACKENDS = ["sync", "process", "native"]
QUIET = {"write_interval": 0, "checkpoint_interval": 0}
NUM_ENVS = 4


class Policy(CategoricalMixin, Model):
    def __init__(self, spaces: dict[str, Any]) -> None:
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

    def compute(self, inputs: Any, role: str = "") -> Any:
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    def __init__(self, spaces: dict[str, Any], inputs: int = 4) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = torch.nn.Sequential(torch.nn.Linear(inputs, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def compute(self, inputs: Any, role: str = "") -> Any:
        parts = [inputs["observations"], *([inputs["taken_actions"]] if role.startswith(("critic", "target")) else [])]
        return self.net(torch.cat(parts, -1)), {}


class Swing(GaussianMixin, Model):
    def __init__(self, spaces: dict[str, Any]) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_actions=True)
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.log_std = torch.nn.Parameter(torch.zeros(1))

    def compute(self, inputs: Any, role: str = "") -> Any:
        return self.net(inputs["observations"]), {"log_std": self.log_std}


def trained_ppo(make: Any, final_observations: bool = False) -> dict[str, Any]:
    set_seed(7)
    env = wrap_env(make("CartPole-v1", max_episode_steps=12), wrapper="gymnasium", verbose=False)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}
    agent = PPO(
        models={"policy": Policy(spaces), "value": Value(spaces)},
        memory=RandomMemory(memory_size=16, num_envs=NUM_ENVS, device="cpu"),
        **spaces,
        cfg={"rollouts": 16, "learning_epochs": 2, "time_limit_bootstrap": True, "experiment": QUIET},
    )
    return trained(env, with_final_observations(agent) if final_observations else agent, ("policy", "value"))


def trained_sac(make: Any, final_observations: bool = False) -> dict[str, Any]:
    set_seed(7)
    env = wrap_env(make("Pendulum-v1", max_episode_steps=10), wrapper="gymnasium", verbose=False)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}
    models = {name: Value(spaces, 4) for name in ("critic_1", "critic_2", "target_critic_1", "target_critic_2")}
    agent = SAC(
        models={"policy": Swing(spaces), **models},
        memory=RandomMemory(memory_size=100, num_envs=NUM_ENVS, device="cpu"),
        **spaces,
        cfg={"batch_size": 32, "learning_starts": 8, "experiment": QUIET},
    )
    return trained(env, with_final_observations(agent) if final_observations else agent, ("policy", "critic_1"))


def trained(env: Any, agent: Any, names: tuple[str, ...]) -> dict[str, Any]:
    cfg = {"timesteps": 64, "headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
    SequentialTrainer(env=env, agents=agent, cfg=cfg).train()
    env.close()
    return {f"{name}.{key}": value for name in names for key, value in agent.models[name].state_dict().items()}


def theirs(mode: AutoresetMode) -> Any:
    return lambda env_id, **env_kwargs: gymnasium.make_vec(
        env_id, NUM_ENVS, "sync", vector_kwargs={"autoreset_mode": mode}, **env_kwargs
    )


def ours(backend: str, mode: AutoresetMode) -> Any:
    return lambda env_id, **env_kwargs: envfleet.make_vec(env_id, NUM_ENVS, backend, autoreset_mode=mode, **env_kwargs)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("train", [trained_ppo, trained_sac])
def test_agents_end_with_the_same_weights(train: Any, mode: AutoresetMode) -> None:
    expected = train(theirs(mode))
    for backend in BACKENDS:
        assert same(train(ours(backend, mode)), expected), backend


@pytest.mark.parametrize("train", [trained_ppo, trained_sac])
def test_final_observations_change_what_is_learnt_the_same_way(train: Any) -> None:
    """On Gymnasium's vector environment too, which has them as well; and not in NEXT_STEP mode, which needs none."""
    expected = train(theirs(AutoresetMode.SAME_STEP), True)
    assert not same(expected, train(theirs(AutoresetMode.SAME_STEP)))
    for backend in BACKENDS:
        assert same(train(ours(backend, AutoresetMode.SAME_STEP), True), expected), backend
    next_step = AutoresetMode.NEXT_STEP
    assert same(train(ours("native", next_step), True), train(ours("native", next_step)))


class Recorder:
    """Stands where an agent is: keeps what it is given to record."""

    observation_space = gymnasium.make("CartPole-v1").observation_space

    def __init__(self) -> None:
        self.next_observations: list[Any] = []

    def record_transition(self, *, next_observations: Any, infos: Any, rewards: Any) -> None:
        self.next_observations.append(next_observations)


def test_agents_record_the_observation_that_the_action_led_to() -> None:
    """A fleet in NEXT_STEP mode says what these are."""
    recorder = with_final_observations(Recorder())  # type: ignore[type-var]
    assert with_final_observations(recorder) is recorder
    env = wrap_env(ours("native", AutoresetMode.SAME_STEP)("CartPole-v1", max_episode_steps=5), "gymnasium", False)
    steps = ours("native", AutoresetMode.NEXT_STEP)("CartPole-v1", max_episode_steps=5)
    env._seed = 3
    env.reset()
    steps.reset(seed=3)
    actions = torch.tensor([[0], [1], [0], [1]])
    for _ in range(5):
        observations, rewards, _, _, infos = env.step(actions)
        given = observations.clone()
        recorder.record_transition(next_observations=observations, infos=infos, rewards=rewards)
        assert torch.equal(observations, given)  # the trainer goes on with them
        np.testing.assert_array_equal(recorder.next_observations[-1].numpy(), steps.step(actions.numpy()[:, 0])[0])
    assert not torch.equal(recorder.next_observations[-1], observations)
    with pytest.raises(ValueError, match="all environments to itself"):
        recorder.record_transition(next_observations=observations[:2], infos=infos, rewards=rewards)
    env.close()
    steps.close()


@pytest.mark.parametrize("block", scripts_of("skrl"))
def test_python_blocks_run(block: str, tmp_path: Path) -> None:
    run_block(block, tmp_path, may_warn=True)
