"""The table of algorithms: each one's configuration and class.

To add an algorithm to envfleet, write its class in a file beside this one and its configuration in `config.py`, and add
a line to `ALGORITHMS`. A program of your own keeps both where it likes and calls `register_algorithm`. Everything else
reads the table: `train`, `resume`, `load_agent`, `preset` and the command line. It does not import torch.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from envfleet._references import named, split
from envfleet.randomize import Distribution
from envfleet.scenarios import parse_randomize
from envfleet.train.config import A2CConfig, DQNConfig, PPOConfig, SACConfig, TD3Config, TrainConfig
from envfleet.train.plain_settings import field_types, restored

if TYPE_CHECKING:
    from envfleet.train.algorithms.learner import Learner, Task


@dataclass(frozen=True)
class Algorithm:
    """A line of the table.

    Attributes:
        config: the configuration, by which the algorithm is asked for; its `algo` is the algorithm's name.
        learner: the class, a `Learner`; or where it is, "module:Class", to be imported when it is needed.
    """

    config: type[TrainConfig]
    learner: type[Learner] | str


ALGORITHMS: dict[str, Algorithm] = {
    "a2c": Algorithm(A2CConfig, "envfleet.train.algorithms.a2c:A2C"),
    "ppo": Algorithm(PPOConfig, "envfleet.train.algorithms.ppo:PPO"),
    "sac": Algorithm(SACConfig, "envfleet.train.algorithms.sac:SAC"),
    "td3": Algorithm(TD3Config, "envfleet.train.algorithms.td3:TD3"),
    "dqn": Algorithm(DQNConfig, "envfleet.train.algorithms.dqn:DQN"),
}
"""By name."""

_BUILT_IN = frozenset(ALGORITHMS)

_SEEN: dict[str, type[Any]] = {}
"""Classes of the user's own that runs of this process were given, by name: those of a notebook or a function too."""


def note_class(one: type[Any]) -> str:
    """Remember a class of the user's own for this process; returns its name, "module:Class"."""
    name = str(named(one))
    _SEEN[name] = one
    return name


def known_class(name: str) -> type[Any] | None:
    """The class of that name, if this process has been given it or has imported its module; imports nothing."""
    if name in _SEEN:
        return _SEEN[name]
    source, path = split(name)
    found: Any = sys.modules.get(source)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def register_algorithm(config: type[TrainConfig], learner: type[Learner]) -> None:
    """Add an algorithm of your own: `train` takes its configuration, and the command line `--algo` with its name.

    It is known to this process only. A program that resumes a run, or loads an agent, registers the algorithm first.

    Args:
        config: a frozen dataclass derived from TrainConfig, for an OnPolicyLearner from A2CConfig or PPOConfig, for an
            OffPolicyLearner from OffPolicyConfig; its class variable `algo` is the algorithm's name, and its docstring
            describes its fields for the command line.
        learner: the class, with the methods of `Learner`; it is called with a configuration and a `Task`.
    """
    if not (isinstance(config, type) and issubclass(config, TrainConfig) and dataclasses.is_dataclass(config)):
        raise TypeError(f"config must be a dataclass derived from TrainConfig, got {config!r}.")
    name = algorithm_name(config)
    if name in _BUILT_IN and ALGORITHMS[name].config is config:
        raise ValueError(
            f"{config.__name__} is the configuration of envfleet's own {name!r}, which stays what it is. For one run: "
            f"train(config, learner={getattr(learner, '__name__', learner)}). For a name of its own: register a class "
            f"derived from {config.__name__} with another `algo`."
        )
    taken = ALGORITHMS[name].config if name in ALGORITHMS else config
    # A class that was defined again, as in a notebook, takes its own place.
    if (taken.__module__, taken.__qualname__) != (config.__module__, config.__qualname__):
        raise ValueError(f"{name!r} is the name of {taken.__name__}; give {config.__name__} an `algo` of its own.")
    ALGORITHMS[name] = Algorithm(config, learner)


def algorithm_name(config: type[TrainConfig]) -> str:
    """The name of the algorithm that a configuration is for; a configuration without one is refused."""
    name = getattr(config, "algo", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{config.__name__}.algo must be a name such as 'my_algorithm', got {name!r}.")
    return name


def config_class(algo: str) -> type[TrainConfig]:
    """The configuration of the algorithm with that name."""
    if not isinstance(algo, str) or algo not in ALGORITHMS:
        raise ValueError(
            f"algo must be one of {', '.join(ALGORITHMS)}, got {algo!r}; one of your own has to be registered first: "
            "register_algorithm()."
        )
    return ALGORITHMS[algo].config


def own_config_class(config: TrainConfig) -> str | None:
    """The name of a configuration's class, if it is another than that of its algorithm's line in the table."""
    usual = ALGORITHMS[config.algo].config if config.algo in ALGORITHMS else None
    return None if type(config) is usual else note_class(type(config))


def found_config_class(name: str) -> type[TrainConfig]:
    """The configuration's class of that name, which `own_config_class` gave; imports nothing."""
    found = known_class(name)
    if found is None or not issubclass(found, TrainConfig) or not dataclasses.is_dataclass(found):
        what = "does not know" if found is None else "knows as something else"
        raise ValueError(
            f"the run's settings are those of a configuration of your own, {name}, which this program {what}. Import "
            "the module that defines it beforehand; a class within a function is known to its own program alone"
        )
    return found


def config_from_dict(algo: str, plain: Mapping[str, Any], own_class: type[TrainConfig] | None = None) -> TrainConfig:
    """What `config_to_dict` was given; `own_class` is the configuration's, if it is not that of the algorithm."""
    config = own_class or config_class(algo)
    known = {entry.name for entry in dataclasses.fields(config)}
    unknown = sorted(plain.keys() - known)
    if unknown:
        raise ValueError(f"{config.__name__} has no setting {', '.join(unknown)}; it has {', '.join(sorted(known))}.")
    values = dict(plain)
    if "reward_scale" in plain:
        values.setdefault("normalize_rewards", False)  # as it was before there was a choice
        values.setdefault("learner", "torch")  # likewise
    if plain.get("return_steps", 1) != 1:
        values.setdefault("multi_step_share", 1.0)  # likewise
    if "randomize" in plain:
        values.setdefault("randomize_on", "make")  # as it was before there was a choice
        values["randomize"] = _read_randomize(plain["randomize"])
    types = field_types(config)
    for name in values.keys() - {"randomize"}:
        values[name] = restored(values[name], types.get(name))
    return config(**values)


def learner_class(config: TrainConfig) -> type[Learner]:
    """The algorithm that `config` is for."""
    entry = ALGORITHMS.get(getattr(config, "algo", ""))
    if entry is None or not isinstance(config, entry.config):
        raise TypeError(f"train() needs {_any_of_the_configs()}, got {_what_came(config)}.")
    if not isinstance(entry.learner, str):
        return entry.learner
    module, _, name = entry.learner.partition(":")
    return cast("type[Learner]", getattr(importlib.import_module(module), name))


def make_learner(config: TrainConfig, task: Task, own: type[Learner] | None = None) -> Learner:
    """The algorithm that `config` is for, or another that is the user's own, with fresh networks."""
    return (own or learner_class(config))(config, task)


def _read_randomize(plain: Any) -> dict[str, Distribution]:
    if not isinstance(plain, Mapping) or not all(isinstance(text, str) for text in plain.values()):
        example = '{"gravity": "uniform(-12, -8)"}'
        raise ValueError(f"randomize must be an object of texts, such as {example}, got {plain!r}")
    return parse_randomize([f"{name}={text}" for name, text in plain.items()])


def _what_came(config: object) -> str:
    """What was given instead of a configuration, and what to write."""
    if isinstance(config, str):
        return f"{config!r}: write train(PPOConfig({config!r}))"
    if isinstance(config, type) and issubclass(config, TrainConfig):
        return (
            f"the class {config.__name__}: write train({config.__name__}(ENV)), with the id or class of an environment"
        )
    if isinstance(config, type):
        return f"the class {config.__name__}: if it is an environment, write train(PPOConfig({config.__name__}))"
    if isinstance(config, TrainConfig):
        return f"{config!r}: register its algorithm beforehand, or give it: train(config, learner=...)"
    return repr(config)


def _any_of_the_configs() -> str:
    names = [entry.config.__name__ for entry in ALGORITHMS.values()]
    *others, last = [f"{'an' if name[0] in 'AEIOU' else 'a'} {name}" for name in names]
    return f"{', '.join(others)} or {last}"
