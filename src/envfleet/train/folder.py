"""A run's folder: what lies where in it, its configuration and its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias, final

from envfleet.errors import NonFiniteError
from envfleet.train.config import TrainConfig, config_from_dict, config_to_dict
from envfleet.train.files import replacing
from envfleet.train.learner import Learner
from envfleet.train.weights import save_tensors

AnyPath: TypeAlias = "str | os.PathLike[str]"
_FORMAT = 1


@final
@dataclass(frozen=True)
class RunFolder:
    """The paths of a run."""

    path: Path

    @property
    def config(self) -> Path:
        """What the run was told."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """One row a log interval."""
        return self.path / "metrics.csv"

    @property
    def actor(self) -> Path:
        """The policy's weights."""
        return self.path / "actor.safetensors"

    @property
    def critic(self) -> Path:
        """The value function's weights."""
        return self.path / "critic.safetensors"

    @property
    def checkpoint(self) -> Path:
        """Everything needed to go on."""
        return self.path / "checkpoint" / "latest.safetensors"

    def check_free(self) -> None:
        """Refuse a folder that holds a run already."""
        if self.config.exists():
            raise FileExistsError(
                f"{self.path} already holds a run; go on with it (envfleet train --resume {self.path}, or "
                f"envfleet.train.resume({str(self.path)!r})) or choose another folder."
            )

    def create(self, config: TrainConfig, *, custom_networks: bool) -> None:
        """Begin a run here; a folder that holds one already is refused."""
        self.check_free()
        content = {
            "format": _FORMAT,
            "envfleet": version("envfleet"),
            "algo": config.algo,
            "custom_networks": custom_networks,
            "config": config_to_dict(config),
        }
        with replacing(self.config) as temporary:
            temporary.write_text(json.dumps(content, indent=2) + "\n")

    def read_config(self) -> tuple[TrainConfig, bool]:
        """The run's configuration, and whether its networks were the user's own."""
        content = self._read_json()
        if content.get("format") != _FORMAT:
            raise ValueError(
                f"{self.config} has format {content.get('format')!r}, this envfleet reads format {_FORMAT}; "
                f"it was written by envfleet {content.get('envfleet', 'of unknown version')}."
            )
        missing = sorted({"algo", "config", "custom_networks"} - content.keys())
        if missing or not isinstance(content["config"], dict) or "env_id" not in content["config"]:
            raise ValueError(f"{self.config} is damaged: it lacks {', '.join(missing) or 'an env_id in its config'}.")
        return config_from_dict(content["algo"], content["config"]), bool(content["custom_networks"])

    def save_weights(self, learner: Learner) -> None:
        """Write actor and critic, each to a file of its own."""
        for name, path in (("actor", self.actor), ("critic", self.critic)):
            save_tensors(path, f"{name} weights", learner.modules[name].state_dict(), {})

    def _read_json(self) -> dict[str, Any]:
        if not self.config.is_file():
            raise FileNotFoundError(
                f"{self.path} is no run of envfleet: it has no config.json. Give the folder that training printed."
            )
        try:
            content = json.loads(self.config.read_text())
        except ValueError as error:
            raise ValueError(f"{self.config} is damaged: {error}.") from error
        if not isinstance(content, dict):
            raise ValueError(f"{self.config} is damaged: expected an object, got {type(content).__name__}.")
        return content


@contextmanager
def naming_what_is_kept(folder: RunFolder) -> Iterator[None]:
    """Add to the error of a run that met a number that is not finite which checkpoint it can be resumed from."""
    try:
        yield
    except NonFiniteError as error:
        kept = f"The checkpoint from before it is kept: envfleet.train.resume({str(folder.path)!r}) goes on from there."
        none = f"{folder.path} has no checkpoint yet."
        error.args = (f"{error} {kept if folder.checkpoint.is_file() else none}",)
        raise
