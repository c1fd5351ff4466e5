"""What is learnt: an environment, an algorithm, and the return that every seed has to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from envfleet.train.algorithms.registry import config_from_dict, preset
from envfleet.train.config import A2CConfig, PPOConfig, SACConfig, TrainConfig, config_to_dict

EPISODES = 100
SEEDS = (0, 1, 2, 3, 4)
Backend = Literal["auto", "native", "sync", "process"]
ALONE: Backend = "auto"
SIDE_BY_SIDE: Backend = "native"
"""Runs that share the cores must not start processes of their own; the numbers learnt are the same on every backend."""

_QUICK_EPISODES = 2


@dataclass(frozen=True)
class Study:
    """Training with the settings that envfleet comes with, which is to reach a return.

    Attributes:
        name: what its files are called.
        env_id: where.
        algo: "a2c", "ppo" or "sac".
        bar: the mean return of the evaluation's episodes that every seed has to reach.
        most_steps: the environment steps it may take.
    """

    name: str
    env_id: str
    algo: str
    bar: float
    most_steps: int

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
    Study("lunarlander-a2c", "LunarLander-v3", "a2c", 240.0, 2_500_000),
    Study("lunarlander-ppo", "LunarLander-v3", "ppo", 240.0, 1_000_000),
    Study("cartpole-a2c", "CartPole-v1", "a2c", 500.0, 2_500_000),
    Study("cartpole-ppo", "CartPole-v1", "ppo", 500.0, 1_000_000),
    Study("pendulum-sac", "Pendulum-v1", "sac", -170.0, 20_000),
    Study("lunarlander-continuous-sac", "LunarLanderContinuous-v3", "sac", 250.0, 300_000),
)


def study_named(name: str) -> Study:
    """The study called `name`."""
    return next(study for study in STUDIES if study.name == name)


def episodes(*, quick: bool) -> int:
    """How many episodes an evaluation has."""
    return _QUICK_EPISODES if quick else EPISODES


def _shortened(config: TrainConfig) -> TrainConfig:
    """A run of a second that does everything once; it learns nothing."""
    if isinstance(config, (A2CConfig, PPOConfig)):
        return replace(config, rollout_steps=32, total_steps=4 * 32 * config.num_envs)
    assert isinstance(config, SACConfig)
    return replace(config, learning_starts=128, total_steps=160)
