"""Which settings meet: the same ones on both sides, and what each side recommends for LunarLander."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from envfleet.train import A2CConfig, PPOConfig, SACConfig, TrainConfig, preset

from .sides import Theirs

ENV_ID = "LunarLander-v3"
CONTINUOUS_ID = "LunarLanderContinuous-v3"
ALGOS = ("a2c", "ppo")
"""Those that are trained to a return as well."""
SPEED_ALGOS = (*ALGOS, "sac")


@dataclass(frozen=True)
class Peer:
    """Settings for Stable-Baselines3; `total_steps` is how long it is meant to train with them."""

    name: str
    num_envs: int
    settings: dict[str, Any]
    total_steps: int
    anneal: bool = False

    @property
    def rollout(self) -> int:
        """Environment steps between two of its updates."""
        return int(self.settings.get("n_steps", 1)) * self.num_envs

    def side(self, algo: str, python: str) -> Theirs:
        """The contestant."""
        env_id = CONTINUOUS_ID if algo == "sac" else ENV_ID
        return Theirs(self.name, python, env_id, algo, self.num_envs, self.settings, self.anneal)


@dataclass(frozen=True)
class Match:
    """Settings of both sides."""

    algo: str
    ours: TrainConfig
    theirs: tuple[Peer, ...]

    @property
    def rollout(self) -> int:
        """Environment steps between two updates of ours."""
        return rollout_of(self.ours)

    def whole_rollouts(self, steps: int) -> int:
        """About so many steps, that both sides can make to the step."""
        return whole_rollouts(self.ours, steps)


def rollout_of(config: TrainConfig) -> int:
    """Environment steps between two updates."""
    return config.num_envs * (config.rollout_steps if isinstance(config, (A2CConfig, PPOConfig)) else 1)


def whole_rollouts(config: TrainConfig, steps: int) -> int:
    """About so many steps, in whole rollouts; fewer of SAC, which learns from each of them."""
    wanted = max(_LEAST_SAC_STEPS, steps // _SAC_SHARE) if config.algo == "sac" else steps
    return max(1, round(wanted / rollout_of(config))) * rollout_of(config)


_SAC_SHARE, _LEAST_SAC_STEPS = 20, 400
# One update of a batch of 256 per step, two 256-unit relu layers: Stable-Baselines3's SAC, with eight environments.
_SAME_SAC = Match(
    "sac",
    SACConfig(
        CONTINUOUS_ID,
        num_envs=8,
        learning_starts=200,
        updates_per_step=1.0,
        batch_size=256,
        noise_correlation=0.0,
        return_steps=1,
        actor_lr=3e-4,
        critic_lr=3e-4,
        temperature_lr=3e-4,
        tau=0.005,
        gamma=0.99,
        reward_scale=1.0,
        normalize_rewards=False,
        hidden_sizes=(256, 256),
        activation="relu",
        normalize_observations=False,
        anneal=False,
    ),
    (
        Peer(
            "same settings",
            8,
            {
                "learning_starts": 200,
                "train_freq": 1,
                "gradient_steps": 8,
                "batch_size": 256,
                "learning_rate": 3e-4,
                "tau": 0.005,
                "gamma": 0.99,
            },
            300_000,
        ),
    ),
)
# Both have separate actor and critic networks of two 64-unit tanh layers, and Adam.
_SAME_A2C = Match(
    "a2c",
    A2CConfig(
        ENV_ID,
        num_envs=10,
        rollout_steps=128,
        actor_lr=7e-4,
        critic_lr=7e-4,
        critic_updates=1,
        gamma=0.99,
        gae_lambda=0.95,
        entropy_coef=0.01,
        normalize_advantages=True,
        max_grad_norm=0.5,
        normalize_rewards=False,
        hidden_sizes=(64, 64),
        activation="tanh",
        normalize_observations=False,
        anneal=False,
    ),
    (
        Peer(
            "same settings",
            10,
            {
                "n_steps": 128,
                "learning_rate": 7e-4,
                "gamma": 0.99,
                "gae_lambda": 0.95,
                "ent_coef": 0.01,
                "vf_coef": 0.5,
                "max_grad_norm": 0.5,
                "normalize_advantage": True,
                "use_rms_prop": False,
            },
            2_500_000,
        ),
    ),
)
# RL Zoo's settings for LunarLander; what it does not name is Stable-Baselines3's default.
_ZOO_PPO = {"n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01}
_ZOO_A2C = {"n_steps": 5, "gamma": 0.995, "learning_rate": 8.3e-4, "ent_coef": 1e-5}
_SAME_PPO = Match(
    "ppo",
    PPOConfig(
        ENV_ID,
        num_envs=16,
        rollout_steps=1024,
        epochs=4,
        minibatch_size=64,
        actor_lr=3e-4,
        critic_lr=3e-4,
        gamma=0.999,
        gae_lambda=0.98,
        clip_range=0.2,
        entropy_coef=0.01,
        target_kl=0.0,
        normalize_advantages=True,
        max_grad_norm=0.5,
        normalize_rewards=False,
        hidden_sizes=(64, 64),
        activation="tanh",
        normalize_observations=False,
        anneal=False,
    ),
    (Peer("same settings", 16, {**_ZOO_PPO, "learning_rate": 3e-4, "clip_range": 0.2, "vf_coef": 0.5}, 1_000_000),),
)


def same_settings(algo: str) -> Match:
    """The same hyperparameters on both sides."""
    return {"a2c": _SAME_A2C, "ppo": _SAME_PPO, "sac": _SAME_SAC}[algo]


def learner_settings(algo: str) -> TrainConfig:
    """What both of our learners are compared with: PPO with settings the field uses, A2C and SAC with our own.

    SAC learns from the first batch on: the random actions before that cost both the same.
    """
    if algo == "ppo":
        return _SAME_PPO.ours
    if algo == "a2c":
        return preset(ENV_ID, algo)
    ours = preset(CONTINUOUS_ID, algo)
    assert isinstance(ours, SACConfig)
    return replace(ours, learning_starts=ours.batch_size)


def recommended_settings(algo: str) -> Match:
    """Our defaults, and RL Zoo's for Stable-Baselines3.

    The zoo trains A2C for 200,000 steps only, so A2C also gets as many steps as ours, its learning rate
    falling over all of them.
    """
    ours = preset(ENV_ID, algo)
    if algo == "ppo":
        return Match(algo, ours, (Peer("RL Zoo", 16, _ZOO_PPO, 1_000_000),))
    longer = f"RL Zoo, but {ours.total_steps:,} steps"
    return Match(
        algo,
        ours,
        (
            Peer("RL Zoo", 8, _ZOO_A2C, 200_000, anneal=True),
            Peer(longer, 8, _ZOO_A2C, ours.total_steps, anneal=True),
        ),
    )
