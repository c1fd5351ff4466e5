"""A run's folder: what lies where in it, its configuration and its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias, final

import gymnasium

from envfleet._single import EnvMaker
from envfleet.errors import DamagedRunError, NonFiniteError
from envfleet.train.algorithms.learner import Learner
from envfleet.train.algorithms.registry import config_from_dict, found_config_class, own_config_class
from envfleet.train.atomic_files import remove_partials, replacing
from envfleet.train.config import TrainConfig, config_to_dict
from envfleet.train.folders.locking import locked
from envfleet.train.folders.trust import AllowImport, check_allowed, modules_named, remember
from envfleet.train.folders.weights import damage, load_tensors, save_tensors
from envfleet.train.wrapper_state import WrapperState, packed, unpacked
from envfleet.train.wrapping import Wrapping

_WRAPPERS = "wrappers"
AnyPath: TypeAlias = "str | os.PathLike[str]"
_FORMAT = 1
_CONFIG_CLASS = "config_class"
"""The entry of config.json with the class of the configuration, where that is the user's own."""


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
    def wrappers(self) -> Path:
        """What the user's vector wrappers have learnt."""
        return self.path / "wrappers.safetensors"

    @property
    def checkpoint(self) -> Path:
        """Everything needed to go on."""
        return self.path / "checkpoint" / "latest.safetensors"

    @property
    def best(self) -> Path:
        """The weights that did best in evaluations during the training: a folder that an agent can be loaded from."""
        return self.path / "best"

    def check_free(self) -> None:
        """Refuse a folder that holds a run already."""
        if self.config.exists():
            raise FileExistsError(
                f"{self.path} already holds a run; go on with it (envfleet train --resume {self.path}, or "
                f"envfleet.train.resume({str(self.path)!r})) or choose another folder."
            )
        if self.metrics.exists():
            raise FileExistsError(
                f"{self.metrics} holds an earlier run's metrics, which a new run would overwrite; train elsewhere."
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else trains here until the block ends; what killed runs left half-written is removed."""
        with locked(self.path):
            remove_partials(self.path, {path.name for path in self._files})
            if self.checkpoint.parent.is_dir():
                remove_partials(self.checkpoint.parent, {self.checkpoint.name}, private=True)
            if self.best.is_dir():
                remove_partials(self.best, (), private=True)
            yield

    @property
    def _files(self) -> tuple[Path, ...]:
        return self.config, self.metrics, self.actor, self.critic, self.wrappers

    def create(self, config: TrainConfig, *, custom_networks: bool, history: Mapping[str, Any] | None = None) -> None:
        """Begin a run here; a folder that holds one already is refused.

        `history` says more about how the run came about, for readers of config.json.

        This is the last thing a beginning run writes: a folder with a configuration can be resumed, one without can be
        begun again.
        """
        self.check_free()
        own_class = own_config_class(config)
        content = {
            "format": _FORMAT,
            "envfleet": version("envfleet"),
            "algo": config.algo,
            **({} if own_class is None else {_CONFIG_CLASS: own_class}),
            "custom_networks": custom_networks,
            **(history or {}),
            "config": config_to_dict(config),
        }
        self._write_config(content, config)

    def extend(self, config: TrainConfig) -> None:
        """Note that the run goes on for more steps than it was told at first; all else of its config.json stays."""
        content = self._parsed(self._read_bytes())
        content["config"]["total_steps"] = config.total_steps
        self._write_config(content, config)

    def read_history(self) -> dict[str, Any]:
        """What config.json says besides: how the run came about, what was to be done after the training."""
        content = self._parsed(self._read_bytes())
        return {name: value for name, value in content.items() if name not in ("format", "envfleet", "algo", "config")}

    def _write_config(self, content: Mapping[str, Any], config: TrainConfig) -> None:
        text = json.dumps(content, indent=2) + "\n"
        if modules_named(config):
            remember(self.path, text.encode())
        with replacing(self.config) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def read_config(self) -> tuple[TrainConfig, bool]:
        """The run's configuration, and whether its networks were the user's own."""
        config, custom_networks, _ = self._read_config()
        return config, custom_networks

    def read_allowed_config(
        self, allow_import: AllowImport, env: str | EnvMaker | None = None
    ) -> tuple[TrainConfig, bool]:
        """The same, of a run whose environments may be made: one that names modules must be trusted or allowed.

        `env`, which the user gives, takes the place of the environment that the run names and needs no permission.
        """
        config, custom_networks, content = self._read_config()
        check_allowed(self.path, content, config if env is None else replace(config, env_id=""), allow_import)
        return config if env is None else replace(config, env_id=env), custom_networks

    def trust(self, allowed: AllowImport) -> None:
        """Remember that the user trusts this run, which names no other modules than those that were allowed."""
        config, _, content = self._read_config()
        check_allowed(self.path, content, config, allowed)
        remember(self.path, content)

    def save_weights(self, learner: Learner) -> None:
        """Write actor and critic, if there is one, each to a file of its own."""
        for name, path in (("actor", self.actor), ("critic", self.critic)):
            if name in learner.modules:
                save_tensors(path, f"{name} weights", learner.modules[name].state_dict(), {})

    def save_wrappers(self, wrapping: Wrapping | None) -> None:
        """Write what the user's wrappers have learnt, if there are any."""
        if wrapping is not None:
            tree, tensors = packed(wrapping.state(), "state")
            save_tensors(self.wrappers, _WRAPPERS, tensors, {"state": tree})

    def read_wrappers(self) -> WrapperState:
        """What the user's wrappers had learnt."""
        tensors, notes = load_tensors(self.wrappers, _WRAPPERS)
        try:
            state: WrapperState = unpacked(notes["state"], tensors)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damage(self.wrappers, f"the state of the wrappers is not what envfleet writes ({error!r})") from error
        return state

    def _read_config(self) -> tuple[TrainConfig, bool, bytes]:
        raw = self._read_bytes()
        content = self._parsed(raw)
        if content.get("format") != _FORMAT:
            raise DamagedRunError(
                f"{self.config} has format {content.get('format')!r}, this envfleet reads format {_FORMAT}; "
                f"it was written by envfleet {content.get('envfleet', 'of unknown version')}."
            )
        missing = sorted({"algo", "config", "custom_networks"} - content.keys())
        if missing or not isinstance(content["config"], dict) or "env_id" not in content["config"]:
            raise self._damage(f"it lacks {', '.join(missing) or 'an env_id in its config'}")
        if not isinstance(content["custom_networks"], bool):
            raise self._damage(f"custom_networks must be true or false, got {content['custom_networks']!r}")
        own_class = self._own_class(content)
        try:
            config = config_from_dict(content["algo"], content["config"], own_class)
        except (ValueError, TypeError) as error:
            raise self._damage(str(error).rstrip(".")) from error
        return config, content["custom_networks"], raw

    def _own_class(self, content: Mapping[str, Any]) -> type[TrainConfig] | None:
        if _CONFIG_CLASS not in content:
            return None
        try:
            return found_config_class(str(content[_CONFIG_CLASS]))
        except ValueError as error:
            raise ValueError(f"{self.config}: {error}.") from None

    def _read_bytes(self) -> bytes:
        try:
            return self.config.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            pass
        if self.checkpoint.is_file() and not self.metrics.exists():
            raise FileNotFoundError(
                f"{self.path} has no config.json: the run was ended before it had begun, and nothing is lost. Start it "
                "again as you did, in the same folder."
            )
        if str(self.path) in gymnasium.registry:
            raise FileNotFoundError(
                f"{self.path} is an environment; expected the folder of a run. Train an agent on it first: "
                f"envfleet train {self.path}, or envfleet.train.train(PPOConfig({str(self.path)!r}))."
            )
        raise FileNotFoundError(
            f"{self.path} is not the folder of a run: it has no config.json. Give the folder that training printed."
        )

    def _parsed(self, raw: bytes) -> dict[str, Any]:
        try:
            content = json.loads(raw.decode())
        except (ValueError, RecursionError) as error:
            raise self._damage(str(error)) from error
        if not isinstance(content, dict):
            raise self._damage(f"expected an object, got {type(content).__name__}")
        return content

    def _damage(self, what: str) -> DamagedRunError:
        return DamagedRunError(f"{self.config} is damaged: {what}. Correct it, or restore it from a copy.")


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
