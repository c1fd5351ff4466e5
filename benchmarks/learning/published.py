"""What others have published for the tasks of the studies: not run here, and often on older environments."""

from __future__ import annotations

from dataclasses import dataclass

_ZOO = "RL Zoo (SB3), benchmark.md"
_CLEANRL = "CleanRL, documentation"
_TIANSHOU = "Tianshou, MuJoCo benchmark (best evaluation within the steps)"


@dataclass(frozen=True)
class Published:
    """A figure as its source gives it.

    Attributes:
        env_id: the task of ours it stands beside.
        algo: as ours are called.
        score: the mean return.
        version: the environment's, as the source calls it.
        steps: of training.
        runs: how many runs, with a seed each.
        source: where it stands.
    """

    env_id: str
    algo: str
    score: float
    version: str
    steps: int
    runs: int
    source: str


PUBLISHED = (
    Published("CartPole-v1", "a2c", 500.0, "CartPole-v1", 500_000, 1, _ZOO),
    Published("CartPole-v1", "ppo", 500.0, "CartPole-v1", 100_000, 1, _ZOO),
    Published("Acrobot-v1", "a2c", -83.4, "Acrobot-v1", 500_000, 1, _ZOO),
    Published("Acrobot-v1", "ppo", -73.5, "Acrobot-v1", 1_000_000, 1, _ZOO),
    Published("MountainCar-v0", "a2c", -111.3, "MountainCar-v0", 1_000_000, 1, _ZOO),
    Published("MountainCar-v0", "ppo", -110.4, "MountainCar-v0", 1_000_000, 1, _ZOO),
    Published("MountainCarContinuous-v0", "ppo", 88.3, "MountainCarContinuous-v0", 20_000, 1, _ZOO),
    Published("MountainCarContinuous-v0", "sac", 94.7, "MountainCarContinuous-v0", 50_000, 1, _ZOO),
    Published("Pendulum-v1", "ppo", -172.2, "Pendulum-v1", 100_000, 1, _ZOO),
    Published("Pendulum-v1", "sac", -157.0, "Pendulum-v1", 20_000, 1, _ZOO),
    Published("LunarLander-v3", "a2c", 155.8, "LunarLander-v2", 200_000, 1, _ZOO),
    Published("LunarLander-v3", "ppo", 242.1, "LunarLander-v2", 1_000_000, 1, _ZOO),
    Published("LunarLanderContinuous-v3", "ppo", 270.9, "LunarLanderContinuous-v2", 1_000_000, 1, _ZOO),
    Published("LunarLanderContinuous-v3", "sac", 260.4, "LunarLanderContinuous-v2", 500_000, 1, _ZOO),
    Published("BipedalWalker-v3", "a2c", 299.8, "BipedalWalker-v3", 5_000_000, 1, _ZOO),
    Published("BipedalWalker-v3", "ppo", 213.3, "BipedalWalker-v3", 5_000_000, 1, _ZOO),
    Published("BipedalWalker-v3", "sac", 297.7, "BipedalWalker-v3", 500_000, 1, _ZOO),
    Published("HalfCheetah-v5", "ppo", 5819.1, "HalfCheetah-v3", 1_000_000, 1, _ZOO),
    Published("HalfCheetah-v5", "sac", 9535.5, "HalfCheetah-v3", 1_000_000, 1, _ZOO),
    Published("HalfCheetah-v5", "ppo", 1442.6, "HalfCheetah-v2", 1_000_000, 3, _CLEANRL),
    Published("HalfCheetah-v5", "sac", 9634.9, "HalfCheetah-v2", 1_000_000, 3, _CLEANRL),
    Published("HalfCheetah-v5", "sac", 12138.8, "HalfCheetah-v3", 1_000_000, 10, _TIANSHOU),
    Published("Hopper-v5", "ppo", 2410.4, "Hopper-v3", 1_000_000, 1, _ZOO),
    Published("Hopper-v5", "sac", 2325.5, "Hopper-v3", 1_000_000, 1, _ZOO),
    Published("Hopper-v5", "sac", 2310.5, "Hopper-v2", 1_000_000, 3, _CLEANRL),
    Published("Hopper-v5", "sac", 3542.2, "Hopper-v3", 1_000_000, 10, _TIANSHOU),
    Published("Walker2d-v5", "ppo", 3478.8, "Walker2d-v3", 1_000_000, 1, _ZOO),
    Published("Walker2d-v5", "sac", 3863.2, "Walker2d-v3", 1_000_000, 1, _ZOO),
    Published("Walker2d-v5", "sac", 3591.5, "Walker2d-v2", 1_000_000, 3, _CLEANRL),
    Published("Walker2d-v5", "sac", 5007.0, "Walker2d-v3", 1_000_000, 10, _TIANSHOU),
    Published("Ant-v5", "ppo", 1327.2, "Ant-v3", 1_000_000, 1, _ZOO),
    Published("Ant-v5", "sac", 4615.8, "Ant-v3", 1_000_000, 1, _ZOO),
    Published("Ant-v5", "sac", 5850.2, "Ant-v3", 1_000_000, 10, _TIANSHOU),
    Published("Swimmer-v5", "ppo", 281.6, "Swimmer-v3", 1_000_000, 1, _ZOO),
    Published("Swimmer-v5", "sac", 345.6, "Swimmer-v3", 1_000_000, 1, _ZOO),
    Published("Humanoid-v5", "sac", 6232.3, "Humanoid-v3", 2_000_000, 1, _ZOO),
    Published("ALE/Pong-v5", "ppo", 21.0, "PongNoFrameskip-v4", 10_000_000, 1, _ZOO),
)


def published_for(env_id: str) -> list[Published]:
    """What there is for a task."""
    return [entry for entry in PUBLISHED if entry.env_id == env_id]
