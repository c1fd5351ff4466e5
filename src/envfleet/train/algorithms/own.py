"""An algorithm of the user's own for one run: `train(config, learner=MyPPO)`; and how a later program finds it again.

A run's config.json holds the name of the class, "my_module:MyPPO". Nothing is ever imported because of that name: the
class is found if the program has given it, or has imported its module already.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from envfleet._references import named, variable_name
from envfleet.train.algorithms.learner import Learner, OnPolicyLearner
from envfleet.train.algorithms.off_policy import OffPolicyLearner
from envfleet.train.algorithms.registry import algorithm_name, known_class, learner_class, note_class
from envfleet.train.config import TrainConfig

LEARNER = "learner_class"
"""The entry of config.json with the name of the class."""

_METHODS = ("actor_for", "act", "learn", "has_learned", "extra_tensors", "load_extra_tensors")
_ATTRIBUTES = ("rollout_steps", "off_policy", "actor", "modules", "optimizers")


def chosen_learner(config: TrainConfig, given: type[Learner] | None) -> type[Learner]:
    """The class a new run is to use: the one that was given, checked, or the algorithm that `config` is for."""
    if given is None:
        return learner_class(config)
    if not isinstance(config, TrainConfig):
        return learner_class(config)  # which says what is wrong with it
    algorithm_name(type(config))
    _check(given, config)
    note_class(given)
    return given


def noted(config: TrainConfig, learner: type[Learner]) -> dict[str, str]:
    """What config.json is to say about the class; nothing if the configuration alone says it all."""
    try:
        usual = learner_class(config)
    except TypeError:  # a configuration that no algorithm was registered for
        usual = None
    return {} if learner is usual else {LEARNER: str(named(learner))}


def found_learner(
    run: Path, config: TrainConfig, history: Mapping[str, Any], given: type[Learner] | None
) -> type[Learner]:
    """The class that a run was trained with: the one that was given, or one that this program knows by its name.

    Args:
        run: the run's folder.
        config: its configuration.
        history: what else its config.json says.
        given: `learner=`, None if that was left out.
    """
    name = history.get(LEARNER)
    if name is None:
        if given is not None:
            raise ValueError(
                f"{run} was trained with the algorithm that its configuration stands for, {config.algo!r}; leave "
                "learner= out."
            )
        return learner_class(config)
    wanted = variable_name(str(name))
    if given is not None:
        _check(given, config)
        if given.__name__ != wanted:
            raise ValueError(f"{run} was trained with {name}; expected learner={wanted}, got {given.__name__}.")
        note_class(given)
        return given
    known = known_class(str(name))
    if known is None:
        raise ValueError(
            f"{run} was trained with an algorithm of your own, {name}, which this program does not know. Import its "
            f"module beforehand, or give the class: learner={wanted}."
        )
    _check(known, config)
    return cast("type[Learner]", known)


def check_made(learner: Learner) -> None:
    """Refuse an algorithm that lacks, once it is made, what training and checkpoints need of it."""
    missing = [name for name in _ATTRIBUTES if not hasattr(learner, name)]
    if missing:
        raise TypeError(
            f"{type(learner).__name__} must have the attributes of envfleet.train.Learner; it lacks "
            f"{', '.join(missing)}. Set them in __init__."
        )
    if "actor" not in learner.modules:
        raise ValueError(
            f"{type(learner).__name__}.modules must hold every network by name, the policy as 'actor', got "
            f"{sorted(learner.modules)}."
        )


def _check(learner: object, config: TrainConfig) -> None:
    """Refuse what is no algorithm, or none for this kind of configuration, before anything is made."""
    if not isinstance(learner, type):
        hint = " A setting of that name belongs into the configuration." if isinstance(learner, str) else ""
        raise TypeError(f"learner must be a class with the methods of envfleet.train.Learner, got {learner!r}.{hint}")
    missing = [name for name in _METHODS if not callable(getattr(learner, name, None))]
    if missing:
        raise TypeError(
            f"learner must be a class with the methods of envfleet.train.Learner; {learner.__name__} lacks "
            f"{', '.join(missing)}."
        )
    if inspect.isabstract(learner):
        undone = ", ".join(sorted(cast("Any", learner).__abstractmethods__))
        raise TypeError(f"{learner.__name__} is abstract: it must define {undone} before it can be trained with.")
    wanted = _config_of(learner)
    if wanted is not None and not isinstance(config, wanted):
        raise TypeError(f"{learner.__name__} learns with a {wanted.__name__}, got a {type(config).__name__}.")


def _config_of(learner: type[Any]) -> type[Any] | None:
    """The configuration in `class MyPPO(OnPolicyLearner[PPOConfig])`, if it is written there."""
    for parent in learner.__mro__:
        for base in vars(parent).get("__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, (OnPolicyLearner, OffPolicyLearner)) and get_args(base):
                wanted = get_args(base)[0]
                return wanted if isinstance(wanted, type) else None
    return None
