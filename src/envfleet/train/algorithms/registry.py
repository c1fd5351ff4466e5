"""The table of algorithms: each one's configuration and class; and settings that suit an environment.

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
from types import MappingProxyType
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

_KNOWN_UNITS: Mapping[str, Any] = MappingProxyType(
    {"normalize_observations": False, "normalize_rewards": False, "reward_scale": 0.01}
)
"""For observations of the order of 1 and returns in the hundreds: nothing has to be found out."""

PRESETS: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType(
    {
        # What counts, a soft landing, comes after hundreds of steps: long traces carry it back. PPO can look ahead
        # further than A2C, for it learns more from each rollout.
        ("LunarLander-v3", "a2c"): MappingProxyType({"gae_lambda": 0.98, **_KNOWN_UNITS}),
        ("LunarLander-v3", "ppo"): MappingProxyType({"gamma": 0.999, "gae_lambda": 0.98, **_KNOWN_UNITS}),
        # Every seed lands after 50,000 steps; from then on one-step targets, and time to learn precision.
        ("LunarLanderContinuous-v3", "sac"): MappingProxyType(
            {"total_steps": 400_000, "multi_step_share": 0.2, "normalize_rewards": False, "reward_scale": 0.1}
        ),
        # As the lander with four choices; landing is precise work, so less noise to begin with and no bonus for it. One
        # run, of seed 10, ended at 274.
        ("LunarLanderContinuous-v3", "ppo"): MappingProxyType(
            {"gamma": 0.999, "gae_lambda": 0.98, "entropy_coef": 0.0, "initial_log_std": -0.5, **_KNOWN_UNITS}
        ),
        ("CartPole-v1", "a2c"): MappingProxyType({"total_steps": 250_000, "actor_lr": 2e-3, **_KNOWN_UNITS}),
        ("CartPole-v1", "ppo"): MappingProxyType({"total_steps": 100_000, **_KNOWN_UNITS}),
        # A call of the compiled step costs the same for a few environments as for many: so there are many, and rollouts
        # are short, for each is one update's worth of news.
        ("gymnax:CartPole-v1", "ppo"): MappingProxyType(
            {
                "num_envs": 2048,
                "rollout_steps": 16,
                "epochs": 4,
                "minibatch_size": 1024,
                "actor_lr": 3e-3,
                "critic_lr": 6e-3,
                **_KNOWN_UNITS,
            }
        ),
        # Short episodes that never end by themselves, and a reward at every step: nothing to look ahead for.
        ("Pendulum-v1", "sac"): MappingProxyType(
            {
                "total_steps": 20_000,
                "normalize_rewards": False,
                "reward_scale": 1.0,
                "learning_starts": 5_000,
                "return_steps": 1,
            }
        ),
        # A fall is seen soon after the actions that led to it: a small network and few transitions a batch suffice. Few
        # random actions in the end, for one of them may be the fall. It is not safe: four of five seeds last for 498
        # steps or more, one for 127. A smaller tau or learning rate and wider layers left such seeds, too.
        ("CartPole-v1", "dqn"): MappingProxyType(
            {
                "total_steps": 100_000,
                "hidden_sizes": (64, 64),
                "learning_starts": 1_000,
                "updates_per_step": 0.5,
                "batch_size": 64,
                "return_steps": 3,
                "exploration_share": 0.2,
                "final_epsilon": 0.02,
                "normalize_rewards": False,
                "reward_scale": 0.01,
            }
        ),
        # Short episodes, and a reward at every step: few random actions and few steps are enough.
        ("Pendulum-v1", "td3"): MappingProxyType(
            {"total_steps": 20_000, "learning_starts": 2_000, "normalize_rewards": False, "reward_scale": 0.1}
        ),
        # The last steps to the goal are saved by a policy that does not act at random: without the bonus for that, and
        # with time to become sure, 67 steps instead of more than 80.
        ("Acrobot-v1", "ppo"): MappingProxyType({"entropy_coef": 0.0}),
        # A reward of -1 a step says nothing until the goal is reached by chance, and the shortest way takes long to
        # find: after 60,000 steps the defaults need 130 steps to the goal. Without the bonus for acting at random 97
        # after 500,000; twice as many steps save none.
        ("MountainCar-v0", "ppo"): MappingProxyType({"total_steps": 500_000, "entropy_coef": 0.0}),
        # Noise that persists finds the goal within the random actions; after 12,000 updates nothing is left to learn.
        ("MountainCarContinuous-v0", "sac"): MappingProxyType({"total_steps": 20_000, "learning_starts": 5_000}),
        # A gait is made of small movements, which deviations of 1 drown. What a step does shows at once, so a short
        # horizon is enough, and small steps of the optimiser on small rollouts, many times over, keep what was learnt:
        # two copies make twice as many updates of a million steps as four. Episodes on its back keep the mean of five
        # seeds at 5,600. A smaller deviation was worse with both seeds tried, the RL Zoo's settings with the one tried.
        ("HalfCheetah-v5", "ppo"): MappingProxyType(
            {
                "num_envs": 2,
                "hidden_sizes": (128, 128),
                "rollout_steps": 512,
                "minibatch_size": 64,
                "epochs": 10,
                "gamma": 0.98,
                "gae_lambda": 0.92,
                "entropy_coef": 0.0,
                "initial_log_std": -1.0,
                "actor_lr": 3e-4,
                "critic_lr": 6e-4,
            }
        ),
        # A fall ends the episode, so the horizon is longer than HalfCheetah's, and noise of a deviation of 1 throws it
        # over before it has learnt to stand. Few copies and small minibatches make many updates of a million steps.
        ("Hopper-v5", "ppo"): MappingProxyType(
            {
                "num_envs": 4,
                "rollout_steps": 512,
                "minibatch_size": 64,
                "epochs": 10,
                "gamma": 0.995,
                "entropy_coef": 0.0,
                "initial_log_std": -0.5,
                "actor_lr": 3e-4,
                "critic_lr": 1e-3,
            }
        ),
        # As Hopper, but a second leg falls over the first sooner: half as much noise to begin with. With a deviation of
        # exp(-0.5) one seed ended at 2,600, with exp(-1) at 4,600.
        ("Walker2d-v5", "ppo"): MappingProxyType(
            {
                "num_envs": 4,
                "rollout_steps": 512,
                "minibatch_size": 64,
                "epochs": 10,
                "entropy_coef": 0.0,
                "initial_log_std": -1.0,
                "actor_lr": 3e-4,
                "critic_lr": 6e-4,
            }
        ),
        # A stroke pays after hundreds of steps, so the horizon is longer than an episode, as others have found who
        # publish figures. One run, of seed 10, ended at 363.
        ("Swimmer-v5", "ppo"): MappingProxyType(
            {
                "num_envs": 4,
                "rollout_steps": 512,
                "minibatch_size": 64,
                "epochs": 10,
                "gamma": 0.9999,
                "gae_lambda": 0.98,
                "entropy_coef": 0.0,
                "initial_log_std": -0.5,
                "actor_lr": 3e-4,
                "critic_lr": 1e-3,
            }
        ),
        # Rewards at every step: targets of one step need no mending, and steps that alternate need no lasting noise.
        # Wide networks pay, so half as many updates.
        ("HalfCheetah-v5", "sac"): MappingProxyType(
            {
                "total_steps": 1_000_000,
                "hidden_sizes": (256, 256),
                "learning_starts": 5_000,
                "updates_per_step": 0.5,
                "return_steps": 1,
                "noise_correlation": 0.0,
            }
        ),
        # Pictures of 84 x 84 in stacks of four come from the compiled games alone. They are bytes, a point counts 1:
        # nothing to normalise. A convolutional network takes small steps, as everywhere in the field. It was not yet
        # trained to its end: that takes hours.
        ("ALE/Pong-v5", "ppo"): MappingProxyType(
            {
                "backend": "native",
                "num_envs": 8,
                "total_steps": 10_000_000,
                "hidden_sizes": (512,),
                "activation": "relu",
                "normalize_observations": False,
                "normalize_rewards": False,
                "rollout_steps": 128,
                "epochs": 4,
                "minibatch_size": 256,
                "clip_range": 0.1,
                "actor_lr": 2.5e-4,
                "critic_lr": 2.5e-4,
            }
        ),
    }
)
"""By environment and algorithm: the settings that differ from the algorithm's defaults."""

_DEFAULT_ALGO = "ppo"
"""Takes every kind of action, and needs fewer environment steps than A2C."""

BEST_ALGO: Mapping[str, str] = MappingProxyType(
    {
        "ALE/Pong-v5": "ppo",
        "Acrobot-v1": "ppo",
        "CartPole-v1": "ppo",
        "HalfCheetah-v5": "ppo",
        "Hopper-v5": "ppo",
        "LunarLander-v3": "ppo",
        "LunarLanderContinuous-v3": "sac",
        "MountainCar-v0": "ppo",
        "MountainCarContinuous-v0": "sac",
        "Pendulum-v1": "sac",
        "Swimmer-v5": "ppo",
        "Walker2d-v5": "ppo",
        "gymnax:CartPole-v1": "ppo",
    }
)
"""By environment: the algorithm to take where none is named, the one whose preset is the better one."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})

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


def preset(env_id: str, algo: str) -> TrainConfig:
    """The configuration to start from: the algorithm's defaults, changed where the environment has a preset."""
    return config_class(algo)(env_id, **preset_changes(env_id, algo))


def preset_changes(env_id: str, algo: str) -> Mapping[str, Any]:
    """What `preset` changes of the algorithm's defaults: values by name, mostly none."""
    return PRESETS.get((env_id, algo), _NOTHING)


def best_algo(env_id: str) -> str:
    """The algorithm to take for an environment if none is asked for."""
    return BEST_ALGO.get(env_id, _DEFAULT_ALGO)


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
