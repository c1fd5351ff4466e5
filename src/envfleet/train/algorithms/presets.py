"""Settings that suit an environment better than an algorithm's defaults, which are chosen for LunarLander-v3."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from envfleet.train.config import CONFIGS, TrainConfig

_NOTHING: Mapping[str, Any] = MappingProxyType({})

PRESETS: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType(
    {
        ("CartPole-v1", "a2c"): MappingProxyType({"total_steps": 250_000, "actor_lr": 2e-3}),
        ("CartPole-v1", "ppo"): MappingProxyType({"total_steps": 100_000}),
        # Short episodes that never end by themselves, and a reward at every step: nothing to look ahead for.
        ("Pendulum-v1", "sac"): MappingProxyType(
            {
                "total_steps": 20_000,
                "reward_scale": 1.0,
                "learning_starts": 5_000,
                "updates_per_step": 1.0,
                "return_steps": 1,
            }
        ),
    }
)
"""By environment and algorithm: the settings that differ from the algorithm's defaults."""


def preset(env_id: str, algo: str) -> TrainConfig:
    """The configuration to start from: the algorithm's defaults, changed where the environment has a preset."""
    if algo not in CONFIGS:
        raise ValueError(f"algo must be one of {', '.join(CONFIGS)}, got {algo!r}.")
    return CONFIGS[algo](env_id, **preset_changes(env_id, algo))


def preset_changes(env_id: str, algo: str) -> Mapping[str, Any]:
    """What `preset` changes of the algorithm's defaults: values by name, mostly none."""
    return PRESETS.get((env_id, algo), _NOTHING)
