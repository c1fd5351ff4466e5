"""The reference page of configurations: every field with its type, default and meaning, from the docstrings."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import docstring_parser

from envfleet.train import A2CConfig, DQNConfig, OffPolicyConfig, PPOConfig, SACConfig, TD3Config, TrainConfig

SRC_URI = "reference/configuration.md"
CONFIGS: dict[type[TrainConfig], str] = {
    TrainConfig: "training.md#settings-of-every-algorithm",
    OffPolicyConfig: "training.md#settings-of-algorithms-with-a-replay-buffer",
    A2CConfig: "a2c.md#settings",
    PPOConfig: "ppo.md#settings",
    SACConfig: "sac.md#settings",
    TD3Config: "td3.md#settings",
    DQNConfig: "dqn.md#settings",
}
"""Each with the page that says when to change what."""

_TOP = """---
title: Configuration
---

# Configuration

A run is told what to do by a frozen dataclass: `PPOConfig("CartPole-v1", num_envs=16)`. On the command line a field is
an option: `--num-envs 16`. A class has the fields of its parents too; what it changes or adds is listed with it.
`envfleet train ENV --algo ALGO` starts from `preset("ENV", "ALGO")`: these defaults, changed where better values are
known for an environment.

"""


def page() -> str:
    """The page as Markdown."""
    return _TOP + "\n".join(_section(config) for config in CONFIGS)


def _section(config: type[TrainConfig]) -> str:
    head = f"## {config.__name__}\n\n{_summary(config)} {_parent(config)}[When to change what](../{CONFIGS[config]}).\n"
    table = "| field | type | default | meaning |\n|---|---|---|---|\n"
    rows = "".join(_row(config, field) for field in own_fields(config))
    return f'{head}\n<div class="fields" markdown>\n\n{table}{rows}\n</div>\n'


def own_fields(config: type[TrainConfig]) -> list[dataclasses.Field[Any]]:
    """The fields that a class adds, or whose default it changes."""
    return [field for field in dataclasses.fields(config) if field.name in config.__annotations__]


def meanings(config: type[TrainConfig]) -> dict[str, str]:
    """What the docstrings of a class and its parents say of each field; the class itself comes last, and so wins."""
    found: dict[str, str] = {}
    for parent in reversed(config.__mro__):
        if parent.__doc__ is not None and dataclasses.is_dataclass(parent):
            parsed = docstring_parser.parse(parent.__doc__)
            found |= {one.arg_name: " ".join((one.description or "").split()) for one in parsed.params}
    return found


def _summary(config: type[TrainConfig]) -> str:
    return docstring_parser.parse(config.__doc__ or "").short_description or ""


def _parent(config: type[TrainConfig]) -> str:
    parent = config.__mro__[1]
    name = parent.__name__
    return f"Also all of [{name}](#{name.lower()}). " if parent in CONFIGS else ""


def _row(config: type[TrainConfig], field: dataclasses.Field[Any]) -> str:
    meaning = meanings(config)[field.name].replace("|", "\\|")
    meaning = re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", meaning)
    kind = str(field.type).replace("|", "\\|")
    return f"| `{field.name}` | `{kind}` | {_default(field)} | {meaning[0].upper()}{meaning[1:]} |\n"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.name == "env_id":
        return "required"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{field.default_factory()!r}`"
    is_large = isinstance(field.default, int) and field.default >= 10_000
    return f"`{field.default:_}`" if is_large else f"`{field.default!r}`"
