"""Small runs of every algorithm, how to stop them, and what must be the same in two that are to be the same."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_envs import ANY_SPACE, AnySpaceEnv

from envfleet.train.config import A2CConfig, DQNConfig, PPOConfig, SACConfig, TD3Config, TrainConfig
from envfleet.train.folders.weights import load_tensors
from envfleet.train.running.metrics import read_metrics
from envfleet.train.running.reporting import Progress

SMALL: dict[str, Any] = {"num_envs": 2, "backend": "sync", "hidden_sizes": (8,)}
ROLLOUT = 32
OFF_POLICY: dict[str, Any] = {
    "total_steps": 20 * ROLLOUT,
    "learning_starts": 100,
    "batch_size": 8,
    "updates_per_step": 0.15,
    "buffer_size": 200,
}
CONFIGS: dict[str, TrainConfig] = {
    "a2c": A2CConfig(ANY_SPACE, **SMALL, rollout_steps=16, critic_updates=2, total_steps=20 * ROLLOUT),
    "ppo": PPOConfig(ANY_SPACE, **SMALL, rollout_steps=16, minibatch_size=16, epochs=2, total_steps=20 * ROLLOUT),
    "sac": SACConfig(ANY_SPACE, **SMALL, **OFF_POLICY, env_kwargs={"actions": "box"}),
    "td3": TD3Config(ANY_SPACE, **SMALL, **OFF_POLICY, env_kwargs={"actions": "box"}),
    "dqn": DQNConfig(ANY_SPACE, **SMALL, **OFF_POLICY, priority_exponent=0.6),
}
EVERY = pytest.mark.parametrize("algo", list(CONFIGS))


def changed(algo: str, **changes: Any) -> TrainConfig:
    """One of the small configurations, with some settings changed."""
    config = CONFIGS[algo]
    env_kwargs = {**config.env_kwargs, **changes.pop("env_kwargs", {})}
    return dataclasses.replace(config, env_kwargs=env_kwargs, **changes)


def outcome(run: Path) -> dict[str, Any]:
    """All that must be the same in two runs that are to be the same: everything but times."""
    metrics = read_metrics(run)
    for name in ("seconds", "steps_per_second"):
        del metrics[name]
    tensors = {}
    for name, kind in (("actor", "actor weights"), ("critic", "critic weights"), ("checkpoint/latest", "checkpoint")):
        if name == "critic" and not (run / "critic.safetensors").exists():  # DQN has none
            continue
        loaded, _ = load_tensors(run / f"{name}.safetensors", kind)
        tensors |= {f"{name}: {key}": tensor.numpy() for key, tensor in loaded.items()}
    return {"metrics": metrics, "tensors": tensors}


def stop_at(steps: Sequence[int]) -> Callable[[Progress], bool]:
    return lambda progress: progress.step not in steps


def interrupt_at_call(patch: pytest.MonkeyPatch, number: int, kind: signal.Signals = signal.SIGINT) -> None:
    """Let the environments' step of that number press Ctrl-C, or send another signal."""
    step, calls = AnySpaceEnv.step, iter(range(1, 10**9))

    def pressing(self: AnySpaceEnv, action: Any) -> Any:
        if next(calls) == number:
            signal.raise_signal(kind)
        return step(self, action)

    patch.setattr(AnySpaceEnv, "step", pressing)
