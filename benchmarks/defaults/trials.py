"""What is trained: environments that no setting was chosen for, each with the old and the new defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from envfleet.backends import BackendName
from envfleet.train.algorithms.registry import config_class
from envfleet.train.config import TrainConfig, config_to_dict

from .environments import GRID_ID, MAZE_ID

SEEDS = (0, 1, 2, 3, 4)
EPISODES = 100
Settings = Literal["old", "new"]
SETTINGS: tuple[Settings, ...] = ("old", "new")

_OLD: Mapping[str, Mapping[str, Any]] = {
    "a2c": {"normalize_observations": False, "normalize_rewards": False, "reward_scale": 0.01},
    "ppo": {"normalize_observations": False, "normalize_rewards": False, "reward_scale": 0.01},
}
"""What the defaults were, where they differ from today's: they were chosen for LunarLander-v3."""


@dataclass(frozen=True, eq=False)
class Case:
    """An environment and an algorithm.

    Attributes:
        env_id: the environment.
        algo: "a2c", "ppo" or "sac".
        steps: environment steps of a run.
        backend: what runs the environment; what is learnt does not depend on it.
        env_kwargs: constructor arguments.
    """

    env_id: str
    algo: str
    steps: int
    backend: BackendName = "native"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{self.env_id.removeprefix('envfleet-defaults/')} {self.algo}"

    def config(self, settings: Settings, seed: int) -> TrainConfig:
        """The algorithm's defaults, today's or the old ones; no preset."""
        old = _OLD[self.algo] if settings == "old" else {}
        return config_class(self.algo)(
            self.env_id,
            total_steps=self.steps,
            seed=seed,
            backend=self.backend,
            env_kwargs=self.env_kwargs,
            device="cpu",
            learner="torch",  # the reference; compiled code computes the same
            **old,
        )

    def plain_config(self, settings: Settings) -> dict[str, Any]:
        """The same as JSON holds it, without the seed."""
        return {name: value for name, value in config_to_dict(self.config(settings, 0)).items() if name != "seed"}


CASES = (
    Case("Acrobot-v1", "ppo", 60_000),
    Case("MountainCar-v0", "ppo", 60_000),
    Case("Pendulum-v1", "ppo", 60_000),
    Case("FrozenLake-v1", "ppo", 100_000),
    Case("Taxi-v4", "ppo", 100_000),
    # By itself an episode would last until the goal is found, which a bad agent never does.
    Case("CliffWalking-v1", "ppo", 50_000, env_kwargs={"max_episode_steps": 200}),
    Case(GRID_ID, "ppo", 50_000, "sync"),
    Case(MAZE_ID, "ppo", 30_000, "sync"),
    Case("Hopper-v5", "ppo", 60_000),
    Case("HalfCheetah-v5", "ppo", 200_000),
    # A2C learns less from a step, and makes up for it by being faster: it gets more of them.
    Case("Acrobot-v1", "a2c", 180_000),
    Case("MountainCar-v0", "a2c", 180_000),
    Case("FrozenLake-v1", "a2c", 200_000),
    Case(GRID_ID, "a2c", 150_000, "sync"),
    Case("HalfCheetah-v5", "a2c", 300_000),
)
