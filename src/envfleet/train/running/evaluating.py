"""Evaluation while a run goes on: every so many steps, without touching anything that the training uses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, final

from envfleet.train.agent import Agent
from envfleet.train.algorithms.learner import Learner
from envfleet.train.atomic_files import replacing
from envfleet.train.config import TrainConfig
from envfleet.train.folders.folder import RunFolder
from envfleet.train.judging.evaluation import evaluate_in
from envfleet.train.judging.play_setup import PlaySetup, evaluation_seed, seeded
from envfleet.train.judging.scores import Evaluation
from envfleet.wrappers._common import AnyVectorEnv

_SEEDS_FROM = 2**40
"""Evaluations during a training have other episodes than those of `evaluate`, or else the best weights would have been
chosen for the very episodes that they are judged by afterwards."""


@final
class PeriodicEvaluation:
    """Plays the same episodes every `eval_every` steps and keeps the weights that did best.

    The environments are its own, and so are their seeds. They are made for the first evaluation.

    Args:
        config: what the run was told; `eval_every` is 1 or more.
        agent: the policy as it is at any time.
        learner: whose weights are kept.
        folder: the run's, in which `best/` lies.
        custom_networks: whether the networks are the user's own.
        own: what config.json says about an algorithm and wrappers of the user's own.

    Attributes:
        latest: the mean return of the last evaluation; None before the first.
        best: the best mean return so far; None before the first evaluation.
    """

    def __init__(
        self,
        config: TrainConfig,
        agent: Agent,
        learner: Learner,
        folder: RunFolder,
        *,
        custom_networks: bool,
        own: Mapping[str, str],
    ) -> None:
        self._config, self._agent, self._learner, self._folder = config, agent, learner, folder
        self._custom_networks, self._own = custom_networks, own
        self._seed = evaluation_seed(_SEEDS_FROM + config.seed)
        self._envs: AnyVectorEnv | None = None
        self.latest: float | None = None
        self.best: float | None = None

    def is_due(self, before: int, after: int) -> bool:
        """Whether a multiple of `eval_every` lies between two numbers of steps, the second included."""
        return after // self._config.eval_every > before // self._config.eval_every

    def run(self, step: int) -> float:
        """Evaluate the policy as it is after `step` steps, and keep its weights if it is the best; the mean return."""
        if self._envs is None:
            self._envs = self._fleet()
        elif self._agent.wrapping is not None:
            self._agent.wrapping.refresh(self._envs)
        found = evaluate_in(self._envs, self._agent, episodes=self._config.eval_episodes, seed=self._seed)
        self.latest = found.mean_return
        if self.best is None or self.latest > self.best:
            self.best = self.latest
            self._keep(found, step)
        return self.latest

    def close(self) -> None:
        """Close the environments; may be called more than once."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None

    def state(self) -> dict[str, Any]:
        """What is needed to go on, as JSON holds it."""
        return {"latest": self.latest, "best": self.best}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.latest, self.best = state["latest"], state["best"]

    def _fleet(self) -> AnyVectorEnv:
        num_envs = min(self._config.num_envs, self._config.eval_episodes)
        setup = PlaySetup.of(self._agent, None, None, None)
        with seeded(self._agent, self._seed):
            return setup.make_fleet(num_envs, self._seed, self._config.backend)

    def _keep(self, found: Evaluation, step: int) -> None:
        best = RunFolder(self._folder.best)
        best.save_weights(self._learner)
        best.save_wrappers(self._agent.wrapping)
        with replacing(best.path / "evaluation.json") as temporary:
            temporary.write_text(json.dumps({"step": step, **found.to_json_dict()}, indent=2) + "\n")
        if not best.config.exists():
            best.create(self._config, custom_networks=self._custom_networks, history=self._own)
