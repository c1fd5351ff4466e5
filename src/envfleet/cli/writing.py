"""Writes a configuration as the command line that trains it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from envfleet.scenarios import format_randomize
from envfleet.train.algorithms.presets import preset
from envfleet.train.config import TrainConfig


def train_arguments(config: TrainConfig) -> str:
    """Return what follows `envfleet` in a shell: the command, the environment, and all that is not as by default."""
    usual = preset(config.env_id, config.algo)
    names = [entry.name for entry in dataclasses.fields(config) if entry.name != "env_id"]
    words = ["train", str(config.env_id), "--algo", config.algo]
    for name in names:
        value = getattr(config, name)
        if value != getattr(usual, name):
            words += _words(name, value)
    return shlex.join(words)


def _words(name: str, value: Any) -> Iterator[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        yield flag if value else f"--no-{flag.removeprefix('--')}"
    elif name == "randomize":
        yield from (flag, *(f"{key}={text}" for key, text in format_randomize(value).items()))
    elif isinstance(value, Mapping):
        yield from (flag, *(f"{key}={entry!r}" for key, entry in value.items()))
    elif isinstance(value, tuple):
        yield from (flag, *map(str, value))
    elif str(value).startswith("-"):
        yield f"{flag}={value}"  # which could otherwise be taken for a flag of its own
    else:
        yield from (flag, str(value))
