"""The settings of `envfleet train` and `envfleet sweep`: the fields of an algorithm's configuration, in groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import docstring_parser
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from envfleet import backends
from envfleet.cli.environment import ENV_HELP
from envfleet.cli.errors import UsageError
from envfleet.cli.parsing import EnvKwargs, parse
from envfleet.train.algorithms.presets import BEST_ALGO, PRESETS, best_algo, preset
from envfleet.train.algorithms.registry import ALGORITHMS
from envfleet.train.config import TrainConfig
from envfleet.train.plain_settings import field_types
from envfleet.train.running.loggers.registry import check_loggers

_GROUPS = {
    "training": ("seed", "total_steps", "stop_at_return", "non_finite"),
    "evaluation": ("eval_every", "eval_episodes", "info_metrics"),
    "environment": (
        "num_envs",
        "backend",
        "first_ready",
        "env_kwargs",
        "randomize",
        "randomize_on",
        "reseed_every",
    ),
    "network": ("hidden_sizes", "activation", "normalize_observations", "device", "learner", "torch_threads"),
}
"""Which settings are shown together. All others are shown under the name of the algorithm."""

_ALGO_HELP = "the algorithm; without it the one tuned for ENV, else ppo."
_SEEDS = "train one run per seed, one after another, and sum them up; goes on with --resume."

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
        showcase: make no video of the agent.
        loggers: where to log besides metrics.csv: tensorboard, wandb, or what register_logger() added.
        wandb: also log to Weights & Biases.
        watch: show the training on a local page, with pictures of the environments; see envfleet watch.
    """

    showcase: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = True
    loggers: Annotated[tuple[str, ...], arg(metavar="NAME ...")] = ("tensorboard",)
    wandb: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    watch: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False

    @contextmanager
    def watching(self, folder: Path) -> Iterator[None]:
        """Serve the live page of a folder meanwhile, if that is wanted."""
        if not self.watch:
            yield
            return
        from envfleet.cli.showcase import need_no_screen
        from envfleet.train.watching.beside import watched

        need_no_screen()
        with watched(folder) as address:
            print(f"live page: {address}", flush=True)
            yield

    def history(self) -> dict[str, Any]:
        """Return what a run's config.json is to say about what was wanted after the training."""
        return {"after_training": {"showcase": self.showcase}}

    def check(self) -> None:
        """Refuse invalid options now, which would otherwise fail during or after the training."""
        try:
            check_loggers((*self.loggers, "wandb") if self.wandb else self.loggers)
        except ValueError as error:
            raise UsageError(f"--{error}") from error


@dataclass(frozen=True)
class EngineOptions:
    """How worker processes run the environments, and what is done when one fails.

    Attributes:
        on_failure: what is done about an environment that raises, crashes, hangs or returns NaN: raise ends the run
            (which can be resumed), restart makes the environment again and counts it.
        step_timeout: seconds that a step of one environment may take before it counts as hanging.
        max_restarts: how often one environment may be made again within a minute.
        check_nan: treat NaN in observations and rewards as a failure.
        num_workers: number of worker processes.
        vector_kwargs: further arguments of the vector environment, such as restart_window=600 context=spawn.
    """

    on_failure: Annotated[
        Literal["raise", "restart"] | None, arg(metavar="{raise,restart}", help_behavior_hint="(default: raise)")
    ] = None
    step_timeout: Annotated[float | None, arg(metavar="SECONDS", help_behavior_hint="(default: no limit)")] = None
    max_restarts: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 10)")] = None
    check_nan: Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")] = False
    num_workers: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: as measured)")] = None
    vector_kwargs: Annotated[EnvKwargs, arg(help_behavior_hint="(default: none)")] = field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """Return what was given, as arguments of a vector environment."""
        own = {name: value for name, value in vars(self).items() if name != "vector_kwargs"}
        given = {name: value for name, value in own.items() if value is not None and value is not False}
        return {**self.vector_kwargs, **given}


@dataclass(frozen=True)
class Request:
    """The parsed arguments of `envfleet train`.

    Attributes:
        config: the configuration of the training.
        run_dir: the run's folder; None for a new folder below `runs`.
        init_from: the run whose weights to start from; None for fresh ones.
        seeds: several seeds to train one after another; empty for one run with the seed of the configuration.
        options: what to do in addition.
    """

    config: TrainConfig
    run_dir: Path | None
    init_from: Path | None
    seeds: tuple[int, ...]
    options: RunOptions

    def starting_from(self, run: Path) -> Request:
        """Return the same with the weights of a run to start from."""
        return dataclasses.replace(self, init_from=run)


def parse_request(argv: Sequence[str]) -> Request:
    """Read the arguments of `envfleet train`; defaults come from the algorithm or the environment's preset."""
    config, form = parse_settings(_train_command(), argv)
    return Request(config, form.run_dir, form.init_from, _checked_seeds(form.seeds), form.run)


@dataclass(frozen=True)
class CommandForm:
    """A command that takes a configuration's settings.

    Attributes:
        name: the command's.
        purpose: what its help text begins with.
        own: its own settings, as `make_dataclass` takes fields.
        changes: settings of the configuration that have another default here.
    """

    name: str
    purpose: str
    own: Sequence[tuple[str, Any, Any]]
    changes: Mapping[str, Any] = field(default_factory=dict)


def parse_settings(command: CommandForm, argv: Sequence[str]) -> tuple[TrainConfig, Any]:
    """Read a configuration and a command's own settings; the latter are attributes of what is returned second."""
    given = given_algo(argv)
    known = BEST_ALGO if given is None else {env_id for env_id, algo in PRESETS if algo == given}
    guess = next((text for text in argv if text in known), "")
    algo = given or best_algo(guess)
    form = _parse_form(command, preset(guess, algo), argv)
    if guess not in ("", form.env_id):  # the guess was the value of some other setting
        algo = given or best_algo(form.env_id)
        form = _parse_form(command, preset(form.env_id, algo), argv)
    values = {name: value for group in (*_GROUPS, algo) for name, value in vars(getattr(form, group)).items()}
    values["vector_kwargs"] = form.engine.given()
    return ALGORITHMS[algo].config(form.env_id, **values), form


def _train_command() -> CommandForm:
    resumed = "go on with a run that was stopped, or extend it: --resume RUN --total-steps MORE."
    seeds = Annotated[tuple[int, ...], arg(metavar="INT ...", help=_SEEDS, help_behavior_hint="(default: one run)")]
    own: list[tuple[str, Any, Any]] = [
        ("run_dir", optional_path("DIR", "the run's folder; by default a new one in runs/ENV."), None),
        ("resume", optional_path("RUN", resumed), None),
        ("init_from", optional_path("RUN", "start from the weights of another run."), None),
        ("seeds", seeds, ()),
        ("run", OmitArgPrefixes[RunOptions], field(default_factory=RunOptions)),
    ]
    return CommandForm("train", "Train an agent. Settings, curves, weights, scores and a video go into a folder.", own)


def _checked_seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds) or any(seed < 0 for seed in seeds):
        raise UsageError(f"--seeds must be whole numbers of 0 or more, each once, got {' '.join(map(str, seeds))}.")
    return seeds


def given_algo(argv: Sequence[str]) -> str | None:
    """Return the algorithm asked for. It decides which settings exist, so it is needed before they can be read."""
    texts = [text.removeprefix("--algo=") for text in argv if text.startswith("--algo=")]
    texts += [value for flag, value in pairwise(argv) if flag == "--algo"]
    return texts[-1] if texts and texts[-1] in ALGORITHMS else None


def _parse_form(command: CommandForm, defaults: TrainConfig, argv: Sequence[str]) -> Any:
    *others, last = (f"--algo {name}" for name in ALGORITHMS if name != defaults.algo)
    suited = f"\n\nThe defaults are those that suit {defaults.env_id}." if defaults.env_id else ""
    description = (
        f"{command.purpose}\n\n"
        f"Shown are the settings of {defaults.algo}; for the others add {', '.join(others)} or {last}.{suited}"
    )
    shown = dataclasses.replace(defaults, **command.changes)
    return parse(_form(shown, command.own), command.name, argv, description)


def _form(defaults: TrainConfig, command_fields: Sequence[tuple[str, Any, Any]]) -> type[Any]:
    """Return a dataclass with the configuration's fields and defaults, and a nested dataclass for each group."""
    help_texts = _help_texts(type(defaults))
    grouped = {name for names in _GROUPS.values() for name in names}
    elsewhere = {"env_id", "vector_kwargs", *grouped}
    own = [entry.name for entry in dataclasses.fields(defaults) if entry.name not in elsewhere]
    groups = [
        (title, OmitArgPrefixes[_group(title, names, defaults, help_texts)])  # type: ignore[misc]
        for title, names in {**_GROUPS, defaults.algo: own}.items()
    ]
    return make_dataclass(
        "Form",
        [
            ("env_id", Annotated[str, Positional, arg(metavar="ENV", help=ENV_HELP)]),
            ("algo", Annotated[Literal[tuple(ALGORITHMS)], arg(help=_ALGO_HELP)], defaults.algo),
            *command_fields,
            *groups,
            ("engine", OmitArgPrefixes[EngineOptions], field(default_factory=EngineOptions)),
        ],
        frozen=True,
        kw_only=True,
    )


def optional_path(metavar: str, help_text: str) -> Any:
    """The type of a setting that is a path, or None if it is not given."""
    return Annotated[Path | None, arg(metavar=metavar, help=help_text, help_behavior_hint="")]


def _group(title: str, names: Sequence[str], defaults: TrainConfig, help_texts: dict[str, str]) -> type[Any]:
    types: Any = field_types(type(defaults))
    fields = []
    for name in names:
        default = getattr(defaults, name)
        hint = "(default: none)" if default in ({}, ()) else "(default: never)" if name == "stop_at_return" else None
        kind: Any = types.get(name, type(default))
        annotation: Any = Annotated[kind, arg(help=help_texts.get(name, ""), help_behavior_hint=hint)]
        fields.append((name, annotation, field(default_factory=partial(copy, default))))
    group = make_dataclass(title, fields, frozen=True)
    group.__doc__ = ""  # or else it would be the signature, which the help text would show
    return group


def _help_texts(config: type[TrainConfig]) -> dict[str, str]:
    described = [docstring_parser.parse(parent.__doc__ or "").params for parent in reversed(config.__mro__)]
    texts = {entry.arg_name: " ".join((entry.description or "").split()) for entries in described for entry in entries}
    return {**texts, **_HELP}
