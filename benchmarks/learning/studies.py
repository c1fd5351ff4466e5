"""What is learnt: an environment, an algorithm, and the return that every seed has to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from envfleet.train.algorithms.presets import preset
from envfleet.train.algorithms.registry import config_from_dict
from envfleet.train.config import A2CConfig, OffPolicyConfig, PPOConfig, TrainConfig, config_to_dict

EPISODES = 100
SEEDS = (0, 1, 2, 3, 4)
Backend = Literal["auto", "native", "sync", "process"]
ALONE: Backend = "auto"
SIDE_BY_SIDE: Backend = "native"
"""Runs that share the cores must not start processes of their own; the numbers learnt are the same on every backend."""

_QUICK_EPISODES = 2
_MANY_STEPS = 1_000_000
_QUICK_STEPS = 640


@dataclass(frozen=True)
class Study:
    """Training with the settings that envfleet comes with, which is to reach a return.

    Attributes:
        name: what its files are called.
        env_id: where.
        algo: the algorithm's name, such as "ppo".
        bar: the mean return of the evaluation's episodes that has to be reached.
        most_steps: the environment steps it may take.
        judged_by: what has to reach it: "worst", every seed, or "iqm", the interquartile mean of the seeds, by which
            the field compares algorithms on tasks where seeds differ.
    """

    name: str
    env_id: str
    algo: str
    bar: float
    most_steps: int
    judged_by: Literal["worst", "iqm"] = "worst"

    @property
    def usual_seeds(self) -> tuple[int, ...]:
        """Those it is run with unless told otherwise: SAC's runs of a million steps take hours, so three."""
        return SEEDS[:3] if self.algo == "sac" and self.most_steps >= _MANY_STEPS else SEEDS

    @property
    def steps_allowed(self) -> int:
        """More steps than these do not count as reaching the bar."""
        return self.most_steps

    def config(self, seed: int, backend: Backend, *, quick: bool = False) -> TrainConfig:
        """What `envfleet train` would take, with one seed and within the steps allowed."""
        found = preset(self.env_id, self.algo)
        found = replace(found, total_steps=min(found.total_steps, self.most_steps), seed=seed, backend=backend)
        return _shortened(found) if quick else found

    def settings(self, *, quick: bool = False) -> dict[str, Any]:
        """The configuration as plain values, without what may differ from run to run: seed and backend."""
        plain = config_to_dict(self.config(0, ALONE, quick=quick))
        return {name: value for name, value in plain.items() if name not in ("seed", "backend")}

    def was_trained_with(self, settings: Mapping[str, Any], *, quick: bool = False) -> bool:
        """Whether an earlier run had today's settings.

        Settings that have come since do not count while they keep what was before.
        """
        today = self.settings(quick=quick)
        if not set(settings) <= set(today):
            return False
        then = config_to_dict(config_from_dict(self.algo, settings))
        # Nothing is randomised here, so it does not matter when.
        return {name: then[name] for name in today} == {**today, "randomize_on": then["randomize_on"]}


STUDIES = (
    Study("lunarlander-a2c", "LunarLander-v3", "a2c", 260.0, 2_500_000),
    Study("lunarlander-ppo", "LunarLander-v3", "ppo", 266.0, 1_000_000),
    Study("cartpole-a2c", "CartPole-v1", "a2c", 500.0, 2_500_000),
    Study("cartpole-ppo", "CartPole-v1", "ppo", 500.0, 1_000_000),
    Study("pendulum-sac", "Pendulum-v1", "sac", -165.0, 20_000),
    Study("lunarlander-continuous-sac", "LunarLanderContinuous-v3", "sac", 263.0, 400_000),
    Study("cartpole-dqn", "CartPole-v1", "dqn", 475.0, 100_000),
    Study("lunarlander-dqn", "LunarLander-v3", "dqn", 220.0, 300_000),
    Study("pendulum-td3", "Pendulum-v1", "td3", -170.0, 20_000),
    Study("lunarlander-continuous-td3", "LunarLanderContinuous-v3", "td3", 250.0, 400_000),
    Study("acrobot-ppo", "Acrobot-v1", "ppo", -85.0, 1_000_000),
    Study("mountaincar-ppo", "MountainCar-v0", "ppo", -115.0, 1_000_000),
    Study("mountaincar-continuous-sac", "MountainCarContinuous-v0", "sac", 92.0, 50_000),
    Study("bipedalwalker-ppo", "BipedalWalker-v3", "ppo", 300.0, 5_000_000),
    Study("halfcheetah-ppo", "HalfCheetah-v5", "ppo", 5_800.0, 1_000_000, "iqm"),
    Study("halfcheetah-sac", "HalfCheetah-v5", "sac", 10_000.0, 1_000_000, "iqm"),
    Study("ant-sac", "Ant-v5", "sac", 4_616.0, 1_000_000, "iqm"),
    Study("humanoid-sac", "Humanoid-v5", "sac", 6_232.0, 1_000_000, "iqm"),
    Study("hopper-sac", "Hopper-v5", "sac", 3_300.0, 1_000_000, "iqm"),
    Study("swimmer-ppo", "Swimmer-v5", "ppo", 282.0, 1_000_000, "iqm"),
    Study("hopper-ppo", "Hopper-v5", "ppo", 3_300.0, 1_000_000, "iqm"),
    Study("walker2d-ppo", "Walker2d-v5", "ppo", 4_000.0, 1_000_000, "iqm"),
)


@dataclass(frozen=True)
class PeerStudy(Study):
    """The same with Stable-Baselines3, in its own virtual environment, with the hyperparameters of its RL Zoo.

    Attributes:
        num_envs: how many environments its `DummyVecEnv` has.
        normalize: whether a `VecNormalize` is around them.
        hyperparameters: of its algorithm. "lin_0.001" falls linearly from 0.001 to 0 over the run, as in the RL Zoo.
    """

    num_envs: int = 1
    normalize: bool = False
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def usual_seeds(self) -> tuple[int, ...]:
        """It is several times slower, so three."""
        return SEEDS[:3]

    @property
    def steps_allowed(self) -> int:
        """It finishes a rollout that it has begun."""
        return self.most_steps + self.num_envs * int(self.hyperparameters.get("n_steps", 1))

    def settings(self, *, quick: bool = False) -> dict[str, Any]:
        """All that decides what is learnt, as plain values."""
        return {
            "env_id": self.env_id,
            "algo": self.algo,
            "num_envs": self.num_envs,
            "normalize": self.normalize,
            "total_steps": _QUICK_STEPS if quick else self.most_steps,
            "hyperparameters": dict(self.hyperparameters),
        }

    def was_trained_with(self, settings: Mapping[str, Any], *, quick: bool = False) -> bool:
        """Whether an earlier run had today's settings."""
        return bool(settings == self.settings(quick=quick))


PEER_STUDIES = (
    PeerStudy(
        *("cartpole-ppo-sb3", "CartPole-v1", "ppo", 500.0, 100_000),
        num_envs=8,
        hyperparameters={
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.0,
            "learning_rate": "lin_0.001",
            "clip_range": "lin_0.2",
        },
    ),
    PeerStudy(
        *("acrobot-ppo-sb3", "Acrobot-v1", "ppo", -85.0, 1_000_000),
        num_envs=16,
        normalize=True,
        hyperparameters={"n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0},
    ),
    PeerStudy(
        *("mountaincar-continuous-sac-sb3", "MountainCarContinuous-v0", "sac", 92.0, 50_000),
        hyperparameters={
            "learning_rate": 3e-4,
            "buffer_size": 50_000,
            "batch_size": 512,
            "ent_coef": 0.1,
            "train_freq": 32,
            "gradient_steps": 32,
            "gamma": 0.9999,
            "tau": 0.01,
            "learning_starts": 0,
            "use_sde": True,
            "policy_kwargs": {"log_std_init": -3.67, "net_arch": [64, 64]},
        },
    ),
    PeerStudy(
        *("pendulum-sac-sb3", "Pendulum-v1", "sac", -165.0, 20_000),
        hyperparameters={"learning_rate": 1e-3},
    ),
)
"""What is compared with Stable-Baselines3 run here; `published.py` has figures for the other tasks."""


ALL_STUDIES = (*STUDIES, *PEER_STUDIES)


def study_named(name: str) -> Study:
    """The study called `name`."""
    return next(study for study in ALL_STUDIES if study.name == name)


def episodes(*, quick: bool) -> int:
    """How many episodes an evaluation has."""
    return _QUICK_EPISODES if quick else EPISODES


def _shortened(config: TrainConfig) -> TrainConfig:
    """A run of a second that does everything once; it learns nothing."""
    if isinstance(config, (A2CConfig, PPOConfig)):
        return replace(config, rollout_steps=32, total_steps=4 * 32 * config.num_envs)
    assert isinstance(config, OffPolicyConfig)
    return replace(config, learning_starts=128, total_steps=160)
