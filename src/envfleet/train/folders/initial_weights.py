"""Weights that a new run starts from: those of another one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import Tensor

from envfleet.train.algorithms.learner import Learner
from envfleet.train.algorithms.own import LEARNER
from envfleet.train.config import TrainConfig
from envfleet.train.folders.checkpoint import check_networks, check_wrap
from envfleet.train.folders.folder import RunFolder
from envfleet.train.folders.weights import load_module, load_tensors
from envfleet.train.networks.networks import Networks
from envfleet.train.wrapper_state import WrapperState
from envfleet.train.wrapping import Wrap

_SAME = ("hidden_sizes", "activation", "normalize_observations")
"""Settings that say what a network is; weights alone do not show all of them."""

_FOLLOWS = {"target_critic": "critic", "target_actor": "actor"}
"""Networks that begin as copies of others."""


@final
@dataclass(frozen=True, eq=False)
class InitialWeights:
    """The actor's and the critic's weights of a run.

    Attributes:
        path: the run's folder.
        tensors: by network.
        wrappers: what the user's wrappers had learnt there; None if there were none.
        may_lack_critic: whether a critic that is not there begins afresh, as with an algorithm of the user's own.
    """

    path: Path
    tensors: dict[str, dict[str, Tensor]]
    wrappers: WrapperState | None = None
    may_lack_critic: bool = False

    @classmethod
    def read(
        cls, path: Path, config: TrainConfig, networks: Networks | None, wrap: Wrap | None = None
    ) -> InitialWeights:
        """Read them; a run whose networks cannot be those of `config` is refused. Nothing is imported."""
        folder = RunFolder(path)
        source, custom_networks = folder.read_config()
        check_networks(folder, networks, custom=custom_networks)
        differing = [
            f"{name}={getattr(source, name)!r} there and {getattr(config, name)!r} here"
            for name in _SAME
            if networks is None and getattr(source, name) != getattr(config, name)
        ]
        if differing:
            raise ValueError(
                f"The weights of {path} do not fit this run: {'; '.join(differing)}. Give both the same settings, or "
                "start without init_from."
            )
        history = folder.read_history()
        check_wrap(folder, history, wrap)
        files = {"actor": folder.actor, "critic": folder.critic}
        # DQN has none, and an algorithm of the user's own may have none.
        if not folder.critic.exists() and (LEARNER in history or source.algo == "dqn"):
            del files["critic"]
        tensors = {name: load_tensors(file, f"{name} weights")[0] for name, file in files.items()}
        return cls(path, tensors, None if wrap is None else folder.read_wrappers(), LEARNER in history)

    def load_into(self, learner: Learner) -> None:
        """Put them into fresh networks; what does not fit is refused."""
        try:
            if "critic" in learner.modules and "critic" not in self.tensors and not self.may_lack_critic:
                raise ValueError(f"{self.path} has no critic.")
            for name, module in learner.modules.items():
                source = _FOLLOWS.get(name, name)
                if source in self.tensors:
                    load_module(module, self.tensors[source], f"{self.path}: the {source}")
        except ValueError as error:
            raise ValueError(
                f"A run cannot start from these weights. {error} Runs share weights if their observation and action "
                "spaces are the same and their algorithms are; A2C and PPO count as one."
            ) from None
