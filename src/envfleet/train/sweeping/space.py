"""What a sweep searches: a distribution for each of some settings of a configuration. Needs neither torch nor Optuna.

The texts of the command line are those of `--randomize`: `actor_lr=loguniform(1e-4, 1e-2) num_envs=choice(8, 16)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from envfleet._names import did_you_mean
from envfleet.randomize import Choice, Distribution, LogUniform, Uniform, choice, loguniform, uniform
from envfleet.scenarios import parse_distributions
from envfleet.train.config import TrainConfig

SearchSpace: TypeAlias = Mapping[str, Distribution]
"""Distributions by the names of settings."""

DEFAULT = "default"
"""What stands on the command line for all settings that are searched by default."""

_EXAMPLE = "actor_lr=loguniform(1e-4, 1e-2), gamma=uniform(0.9, 1), num_envs=choice(8, 16) or hidden_sizes"

_SEARCHED: SearchSpace = MappingProxyType(
    {
        "actor_lr": loguniform(1e-4, 1e-2),
        "critic_lr": loguniform(1e-4, 1e-2),
        "gamma": choice([0.95, 0.98, 0.99, 0.995, 0.999]),
        "gae_lambda": uniform(0.8, 1.0),
        "entropy_coef": loguniform(1e-4, 0.1),
        "rollout_steps": choice([16, 32, 64, 128, 256]),
        "critic_updates": choice([1, 2, 4, 8, 16]),
        "epochs": choice([3, 6, 10, 20]),
        "minibatch_size": choice([64, 128, 256, 512]),
        "clip_range": uniform(0.1, 0.4),
        "batch_size": choice([64, 128, 256, 512]),
        "tau": loguniform(0.002, 0.05),
        "updates_per_step": choice([0.25, 0.5, 1.0, 2.0]),
        "return_steps": choice([1, 3, 5]),
        "learning_rate": loguniform(1e-4, 1e-2),
        "exploration_noise": uniform(0.05, 0.4),
        "final_epsilon": loguniform(0.005, 0.1),
        "hidden_sizes": choice([(32, 32), (64, 64), (128, 128), (256, 256)]),
    }
)
"""What is searched by default, of every configuration that has the setting."""

_OF_ONE: Mapping[str, SearchSpace] = MappingProxyType(
    {
        # Many small steps on data that is used once: its rollouts may be short, its critic fast.
        "a2c": MappingProxyType({"critic_lr": loguniform(3e-4, 3e-2), "rollout_steps": choice([8, 16, 32, 64, 128])}),
        # A rollout is used several times over, so it has to be long.
        "ppo": MappingProxyType({"rollout_steps": choice([64, 128, 256, 512]), "actor_lr": loguniform(5e-5, 5e-3)}),
    }
)
"""What differs for one algorithm, by its name."""

_NOT_SEARCHED = {
    "env_id": "a sweep is about one environment",
    "seed": "the sweep uses the same for every trial, and for its suggestions",
    "total_steps": "trials of different lengths cannot be compared",
    "eval_every": "trials are compared where they were evaluated",
    "eval_episodes": "trials are judged by the same episodes",
    "stop_at_return": "trials that end early cannot be compared",
    "env_kwargs": "trials on different environments cannot be compared",
    "vector_kwargs": "it changes nothing that is learnt",
    "randomize": "trials on different environments cannot be compared",
    "randomize_on": "trials on different environments cannot be compared",
    "info_metrics": "it changes nothing that is learnt",
}
"""Settings that every trial has to have in common, and why."""


def default_search_space(config: TrainConfig) -> dict[str, Distribution]:
    """Return what `sweep` searches unless told otherwise, by the names of settings.

    Args:
        config: the configuration of any algorithm, also of one of your own.
    """
    known = {entry.name for entry in dataclasses.fields(config)}
    return {name: found for name, found in {**_SEARCHED, **_OF_ONE.get(config.algo, {})}.items() if name in known}


def parse_search(texts: Sequence[str], config: TrainConfig) -> dict[str, Distribution]:
    """Read what to search from texts; without any, what is searched by default.

    Args:
        texts: Each is `name=distribution`, the name of a setting that is searched by default, or `default` for all of
            those.
        config: the configuration whose settings are meant.
    """
    usual = default_search_space(config)
    presets: dict[str, Mapping[str, Distribution]] = {name: {name: found} for name, found in usual.items()}
    return parse_distributions(texts or [DEFAULT], {DEFAULT: usual, **presets}, _EXAMPLE)


def check_search(config: TrainConfig, space: SearchSpace) -> None:
    """Refuse a space with settings that the configuration has not, or values that it does not accept."""
    if not isinstance(space, Mapping) or not space:
        raise ValueError(f"a sweep needs at least one setting to search, such as {_EXAMPLE}; got {space!r}.")
    problems = [problem for name, found in space.items() for problem in _problems(config, name, found)]
    if problems:
        raise ValueError(f"this cannot be searched: {'; '.join(problems)}.")


def is_whole(config: TrainConfig, name: str) -> bool:
    """Whether a setting is a whole number, so that a range of it is one of whole numbers."""
    types = {entry.name: entry.type for entry in dataclasses.fields(config)}
    return types[name] in (int, "int")


def _problems(config: TrainConfig, name: str, found: Distribution) -> Iterator[str]:
    known = [entry.name for entry in dataclasses.fields(config) if entry.name not in _NOT_SEARCHED]
    if name in _NOT_SEARCHED:
        yield f"{name} must be the same for all trials, because {_NOT_SEARCHED[name]}"
    elif name not in known:
        yield f"{type(config).__name__} has no setting {name!r}{did_you_mean(name, known)}; it has {', '.join(known)}"
    elif not isinstance(found, (Uniform, LogUniform, Choice)):
        yield f"{name} needs uniform(low, high), loguniform(low, high) or choice(a, b, ...), got {found!r}"
    elif not isinstance(found, Choice) and is_whole(config, name) and not _has_whole_ends(found):
        yield f"{name} is a whole number, so the ends of its range must be, got {found!r}"
    else:
        yield from _refused_values(config, name, found)


def _has_whole_ends(found: Uniform | LogUniform) -> bool:
    return found.low.is_integer() and found.high.is_integer()


def _refused_values(config: TrainConfig, name: str, found: Uniform | LogUniform | Choice) -> Iterator[str]:
    """What the configuration itself says of the ends of a range, or of each option."""
    ends: Sequence[Any] = found.options if isinstance(found, Choice) else (found.low, found.high)
    whole = is_whole(config, name) and not isinstance(found, Choice)
    for value in ends:
        change: dict[str, Any] = {name: int(value) if whole else value}
        try:
            dataclasses.replace(config, **change)
        except (TypeError, ValueError) as error:
            yield str(error).partition(": ")[2].rstrip(".") or str(error)
