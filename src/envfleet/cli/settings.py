"""The settings of `envfleet train`: the fields of an algorithm's configuration, in groups."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import docstring_parser
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from envfleet import backends
from envfleet.cli.environment import ENV_HELP
from envfleet.cli.errors import UsageError
from envfleet.cli.parsing import parse
from envfleet.train.algorithms.registry import ALGORITHMS, PRESETS, preset
from envfleet.train.config import TrainConfig
from envfleet.train.running.loggers.registry import check_loggers

_DEFAULT_ALGO = "a2c"
_GROUPS = {
    "training": ("seed", "total_steps", "non_finite"),
    "environment": ("num_envs", "backend", "env_kwargs", "randomize", "randomize_on", "reseed_every"),
    "network": ("hidden_sizes", "activation", "normalize_observations", "device", "torch_threads"),
}
"""Which settings are shown together. All others are shown under the name of the algorithm."""

_HELP = {
    "backend": f"what runs the environments: {backends.described()}.",
    "env_kwargs": "constructor arguments of the environment, such as gravity=-5 enable_wind=True.",
    "randomize": "parameters that vary, such as gravity=uniform(-11,-9), "
    "gravity=normal(-10,1,-11.99,-0.01) and enable_wind=choice(True,False), or the preset lunar-lander.",
}
"""What a command line takes where Python takes a dict, and what the table of backends knows."""


@dataclass(frozen=True)
class RunOptions:
    """What to do in addition to the training.

    Attributes:
        eval_episodes: number of evaluation episodes after the training; 0 for none.
        showcase: make no video of the agent.
        loggers: where to log besides metrics.csv: tensorboard, wandb, or what register_logger() added.
        wandb: also log to Weights & Biases.
    """

    eval_episodes: int = 100
    showcase: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = True
    loggers: Annotated[tuple[str, ...], arg(metavar="NAME ...")] = ("tensorboard",)
    wandb: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False

    def check(self) -> None:
        """Refuse invalid options now, which would otherwise fail during or after the training."""
        if self.eval_episodes < 0:
            raise UsageError(f"--eval-episodes must be 0 or more, got {self.eval_episodes}.")
        try:
            check_loggers((*self.loggers, "wandb") if self.wandb else self.loggers)
        except ValueError as error:
            raise UsageError(f"--{error}") from error


@dataclass(frozen=True)
class Request:
    """The parsed arguments of `envfleet train`.

    Attributes:
        config: the configuration of the training.
        run_dir: the run's folder; None for a new folder below `runs`.
        options: what to do in addition.
    """

    config: TrainConfig
    run_dir: Path | None
    options: RunOptions


def parse_request(argv: Sequence[str]) -> Request:
    """Read the arguments of `envfleet train`; defaults come from the algorithm or the environment's preset."""
    algo = _given_algo(argv)
    guess = next((text for text in argv if (text, algo) in PRESETS), "")
    form = _parse_form(preset(guess, algo), argv)
    if guess not in ("", form.env_id):  # the guess was the value of some other setting
        form = _parse_form(preset(form.env_id, algo), argv)
    values = {name: value for group in (*_GROUPS, algo) for name, value in vars(getattr(form, group)).items()}
    return Request(ALGORITHMS[algo].config(form.env_id, **values), form.run_dir, form.run)


def _given_algo(argv: Sequence[str]) -> str:
    """Return the algorithm. It decides which settings exist, so it is needed before they can be read."""
    texts = [text.removeprefix("--algo=") for text in argv if text.startswith("--algo=")]
    texts += [value for flag, value in pairwise(argv) if flag == "--algo"]
    return texts[-1] if texts and texts[-1] in ALGORITHMS else _DEFAULT_ALGO


def _parse_form(defaults: TrainConfig, argv: Sequence[str]) -> Any:
    *others, last = (f"--algo {name}" for name in ALGORITHMS if name != defaults.algo)
    suited = f"\n\nThe defaults are those that suit {defaults.env_id}." if defaults.env_id else ""
    description = (
        "Train an agent. Settings, curves, weights, scores and a video go into a folder.\n\n"
        f"Shown are the settings of {defaults.algo}; for the others add {', '.join(others)} or {last}.{suited}"
    )
    return parse(_form(defaults), "train", argv, description)


def _form(defaults: TrainConfig) -> type[Any]:
    """Return a dataclass with the configuration's fields and defaults, and a nested dataclass for each group."""
    help_texts = _help_texts(type(defaults))
    grouped = {name for names in _GROUPS.values() for name in names}
    own = [entry.name for entry in dataclasses.fields(defaults) if entry.name not in {"env_id", *grouped}]
    groups = [
        (title, OmitArgPrefixes[_group(title, names, defaults, help_texts)])  # type: ignore[misc]
        for title, names in {**_GROUPS, defaults.algo: own}.items()
    ]
    return make_dataclass(
        "Form",
        [
            ("env_id", Annotated[str, Positional, arg(metavar="ENV", help=ENV_HELP)]),
            ("algo", Annotated[Literal[tuple(ALGORITHMS)], arg(help="the algorithm.")], _DEFAULT_ALGO),
            ("run_dir", _path("DIR", "the run's folder; by default a new one in runs/ENV."), None),
            (
                "resume",
                _path("RUN", "go on with a run that was stopped; takes no settings, the run has them."),
                None,
            ),
            ("run", OmitArgPrefixes[RunOptions], field(default_factory=RunOptions)),
            *groups,
        ],
        frozen=True,
        kw_only=True,
    )


def _path(metavar: str, help_text: str) -> Any:
    return Annotated[Path | None, arg(metavar=metavar, help=help_text, help_behavior_hint="")]


def _group(title: str, names: Sequence[str], defaults: TrainConfig, help_texts: dict[str, str]) -> type[Any]:
    types: Any = _types(type(defaults))
    fields = []
    for name in names:
        default = getattr(defaults, name)
        hint = "(default: none)" if default == {} else None
        annotation = Annotated[types[name], arg(help=help_texts.get(name, ""), help_behavior_hint=hint)]
        fields.append((name, annotation, field(default_factory=partial(copy, default))))
    group = make_dataclass(title, fields, frozen=True)
    group.__doc__ = ""  # or else it would be the signature, which the help text would show
    return group


def _types(config: type[TrainConfig]) -> dict[str, Any]:
    """The types of the fields, each read as the module understands it in which its class is written."""
    names = {entry.name for entry in dataclasses.fields(config)}
    types: dict[str, Any] = {}
    for parent in reversed(config.__mro__):
        # Only of fields: Python 3.10 takes the KW_ONLY marker among the annotations for a type, and refuses it.
        own = {name: text for name, text in inspect.get_annotations(parent).items() if name in names}
        types |= get_type_hints(type("Fields", (), {"__annotations__": own, "__module__": parent.__module__}))
    return types


def _help_texts(config: type[TrainConfig]) -> dict[str, str]:
    described = [docstring_parser.parse(parent.__doc__ or "").params for parent in reversed(config.__mro__)]
    texts = {entry.arg_name: " ".join((entry.description or "").split()) for entries in described for entry in entries}
    return {**texts, **_HELP}
