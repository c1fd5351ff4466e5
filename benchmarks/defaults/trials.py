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
            **old,
        )

    def plain_config(self, settings: Settings) -> dict[str, Any]:
        """The same as JSON holds it, without the seed."""
        return {name: value for name, value in config_to_dict(self.config(settings, 0)).items() if name != "seed"}


def _of(algo: str, times: int = 1) -> tuple[Case, ...]:
    def case(env_id: str, steps: int, backend: BackendName = "native", **env_kwargs: Any) -> Case:
        return Case(env_id, algo, times * steps, backend, env_kwargs)

    return (
        case("Acrobot-v1", 60_000),
        case("MountainCar-v0", 60_000),
        case("Pendulum-v1", 60_000),
        case("FrozenLake-v1", 100_000),
        case("Taxi-v4", 100_000),
        # By itself an episode would last until the goal is found, which a bad agent never does.
        case("CliffWalking-v1", 50_000, max_episode_steps=200),
        case(GRID_ID, 50_000, "sync"),
        case(MAZE_ID, 30_000, "sync"),
        case("Hopper-v5", 60_000),
        case("HalfCheetah-v5", 200_000),
    )


CASES = (*_of("ppo"), *_of("a2c", times=3))
"""A2C learns less from a step, and makes up for it by being faster: it gets three times as many."""
