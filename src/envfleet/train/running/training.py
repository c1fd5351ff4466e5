"""A training run under way: collect, learn, count, and be able to stop and go on anywhere between two rollouts.

Environments cannot be saved, but they can be repeated. All of them are reset with a fresh derived seed every
`reseed_every` steps: a *stream*. A checkpoint holds the stream's number and the actions since its start, and going on
means resetting with that stream's seed and acting the same again. Same seed, same trajectory, on every backend.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from envfleet.errors import NonFiniteError
from envfleet.train.agent import Agent
from envfleet.train.algorithms.learner import Learner
from envfleet.train.collecting import EpisodeTracker, Position, Rollout, begin, collect
from envfleet.train.config import TrainConfig
from envfleet.train.environments import env_seed
from envfleet.train.finite import check_optimizers, check_weights
from envfleet.train.first_ready import FirstReady
from envfleet.train.observations import Array, Observations
from envfleet.train.running.checkpoint import Checkpoint, problems_of, restore_generator, restore_learner
from envfleet.train.running.metrics import LogInterval
from envfleet.train.running.reporting import Progress
from envfleet.train.running.weights import check_names, damage
from envfleet.train.watch import Watch, traced
from envfleet.wrappers._common import AnyVectorEnv

_REMEMBERED_EPISODES = 100
_ROWS = 1000
_EPISODES_A_STREAM = 10
_REPLAYED_AT_ONCE = 128


@final
class Training:
    """The loop's state.

    Args:
        config: what the run was told.
        envs: the fleet; it belongs to the caller.
        learner: the algorithm.
        agent: its policy.
    """

    def __init__(self, config: TrainConfig, envs: AnyVectorEnv, learner: Learner, agent: Agent) -> None:
        self._config, self._envs, self._learner, self._agent = config, envs, learner, agent
        takes_some = config.first_ready > 0 and learner.off_policy
        self._rollout_size = config.first_ready if takes_some else learner.rollout_steps * config.num_envs
        if config.total_steps < self._rollout_size:
            raise ValueError(
                f"total_steps={config.total_steps} is less than one rollout of {config.num_envs} environments "
                f"x {learner.rollout_steps} steps; give at least {self._rollout_size}."
            )
        self._rollouts = config.total_steps // self._rollout_size
        self._log_every = max(self._rollout_size, config.total_steps // _ROWS)
        self._stream_steps = _stream_steps(config, envs)
        self._tracker = EpisodeTracker(config.num_envs)
        self._recent: deque[float] = deque(maxlen=_REMEMBERED_EPISODES)
        self._interval = LogInterval()
        self._watch = Watch(
            config.non_finite, config.num_envs, config.reward_scale, normalizes=config.normalize_rewards
        )
        self._act = self._watch.shielded(learner.act)
        self._first_ready = FirstReady(envs) if config.first_ready else None
        self._journal: list[Array] = []
        self._position: Position | None = None
        self._done_rollouts = self._stream = self._episodes = 0
        self.step = 0
        self.seconds = 0.0

    @property
    def finished(self) -> bool:
        """Whether another rollout would exceed `total_steps`."""
        return self._done_rollouts >= self._rollouts

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes."""
        return float(np.mean(self._recent)) if self._recent else None

    def advance(self) -> Progress | None:
        """Collect one rollout and learn from it; returns where the run stands if it is time to log."""
        started = time.perf_counter()
        if not self._interval.steps:  # a callback has had the networks in its hands
            self._check_weights()
        rollout = self._collect(self._current_position())
        checked = self._watch.checked(rollout, self.step)
        metrics = self._learn(checked)
        self._position = rollout.end
        if self._first_ready is None:
            self._journal.append(rollout.actions)
        episodes = self._tracker.finished(rollout, checked)
        self._recent.extend(episode.episode_return for episode in episodes)
        self._episodes += len(episodes)
        self._done_rollouts += 1
        self.step += rollout.transitions
        elapsed = time.perf_counter() - started
        self.seconds += elapsed
        ended = [(episode.episode_return, episode.length) for episode in episodes]
        self._interval.add(rollout.transitions, elapsed, metrics, ended)
        return self._logged() if self._interval.steps >= self._log_every or self.finished else None

    def _collect(self, position: Position) -> Rollout:
        try:
            if self._first_ready is None:
                return collect(self._envs, self._act, self._learner.rollout_steps, position)
            if self._learner.off_policy:
                return self._first_ready.first_results(self._act)
            return self._first_ready.steps_of_all(self._act, self._learner.rollout_steps)
        except NonFiniteError as error:
            raise traced(error, self._learner, None, self.step) from error

    def _learn(self, rollout: Rollout) -> dict[str, float]:
        try:
            return self._learner.learn(rollout, self._done_rollouts / self._rollouts)
        except NonFiniteError as error:
            raise traced(error, self._learner, rollout, self.step + rollout.transitions) from error

    def _check_weights(self) -> None:
        check_weights(self._learner.modules, f"at step {self.step:,}", self.step)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint must hold beside the learner: tensors and notes.

        Raises:
            NonFiniteError: The learner is not worth saving.
        """
        self._check_weights()
        check_optimizers(self._learner.optimizers, f"at step {self.step:,}", self.step)
        tensors = {"journal": torch.from_numpy(np.concatenate(self._journal))} if self._journal else {}
        if self._position is not None:
            tensors |= {name: torch.from_numpy(leaf) for name, leaf in _leaves(self._position.observations)}
        notes = {
            "step": self.step,
            "seconds": self.seconds,
            "rollouts": self._done_rollouts,
            "stream": self._stream,
            "episodes": self._episodes,
            "recent": list(self._recent),
            "tracker": self._tracker.state(),
            "interval": self._interval.state(),
            "watch": self._watch.state(),
        }
        return tensors, notes

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint: learner, counters, and the environments by acting the same again."""
        self._check(checkpoint)
        notes = checkpoint.notes
        self.step, self.seconds = notes["step"], notes["seconds"]
        self._done_rollouts, self._stream, self._episodes = notes["rollouts"], notes["stream"], notes["episodes"]
        self._recent.extend(notes["recent"])
        self._tracker.load_state(notes["tracker"])
        self._interval = LogInterval.from_state(notes["interval"])
        if "watch" in notes:  # earlier versions wrote none
            self._watch.load_state(notes["watch"])
        # Where episodes are dropped, all of them may have been.
        learned = self._config.non_finite == "stop" and self._learner.has_learned(notes["step"])
        restore_learner(self._learner, checkpoint, learned=learned)
        self._check_weights()
        if self._done_rollouts == 0:  # saved before anything was done
            return
        if self._first_ready is None:
            journal = checkpoint.tensors["journal"].numpy()
            self._journal = [journal]
            self._position = _replayed(self._envs, env_seed(self._config.seed, self._stream), journal)
            _compare(self._position.observations, checkpoint)
        else:  # actions under way are lost with the process that awaited them: episodes begin anew
            self._stream += 1
            self._position = self._begin_stream()
        # Last, because making and replaying environments must not move torch's generator.
        restore_generator(checkpoint)

    def _check(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint that this run cannot have written."""
        notes, path = checkpoint.notes, checkpoint.path
        problems = [*problems_of(notes, self._config.num_envs)]
        if not problems and notes["rollouts"] > self._rollouts:
            problems.append(f"rollouts must be at most {self._rollouts}, got {notes['rollouts']}")
        if not problems and notes["step"] > notes["rollouts"] * self._rollout_size:
            problems.append(f"step must be at most {notes['rollouts'] * self._rollout_size}, got {notes['step']}")
        if problems:
            raise damage(path, "; ".join(problems))
        if notes["rollouts"] and self._first_ready is None:
            check_names(path, checkpoint.tensors, ["journal"])
            self._check_journal(checkpoint.tensors["journal"], notes, path)

    def _check_journal(self, journal: Tensor, notes: Mapping[str, Any], path: Path) -> None:
        shape = (self._config.num_envs, *(self._envs.single_action_space.shape or ()))
        longest = notes["rollouts"] * self._learner.rollout_steps
        shortest = 1 if notes["stream"] else longest
        if tuple(journal.shape[1:]) != shape or not shortest <= len(journal) <= longest:
            steps = f"{shortest} to {longest}" if shortest < longest else f"{longest}"
            raise damage(path, f"the journal must hold {steps} steps of {shape}, got {tuple(journal.shape)}")

    def _current_position(self) -> Position:
        steps = sum(map(len, self._journal))
        if self._position is not None and (not self._stream_steps or steps < self._stream_steps):
            return self._position
        if self._position is not None:
            self._stream += 1
        return self._begin_stream()

    def _begin_stream(self) -> Position:
        self._journal = []
        self._tracker.restart()
        self._watch.restart()
        seed = env_seed(self._config.seed, self._stream)
        return begin(self._envs, seed) if self._first_ready is None else self._first_ready.begin(seed)

    def _logged(self) -> Progress:
        metrics = self._interval.row()
        row = {"step": self.step, "seconds": self.seconds, "episodes": self._episodes, **metrics}
        first = ("step", "seconds", "steps_per_second", "episodes", "episode_return", "episode_length")
        row = {**{name: row[name] for name in first}, **row}
        if self._config.non_finite == "drop":
            row["dropped_episodes"] = self._watch.dropped
        self._interval = LogInterval()
        return Progress(
            self.step, self._config.total_steps, self.seconds, self._episodes, self.mean_return, row, self._agent
        )


def _stream_steps(config: TrainConfig, envs: AnyVectorEnv) -> int:
    """Steps of each environment between two resets; several episodes must fit in, or long ones would never end."""
    limit = config.env_kwargs.get("max_episode_steps") or getattr(envs.spec, "max_episode_steps", None) or 0
    return max(config.reseed_every, _EPISODES_A_STREAM * limit) if config.reseed_every else 0


def _replayed(envs: AnyVectorEnv, seed: int, journal: Array) -> Position:
    actions = iter(journal)
    position = begin(envs, seed)
    # In pieces: the observations on the way are not wanted, and all of them at once may not fit into memory.
    for start in range(0, len(journal), _REPLAYED_AT_ONCE):
        steps = min(_REPLAYED_AT_ONCE, len(journal) - start)
        position = collect(envs, lambda _: next(actions), steps, position).end
    return position


def _compare(observations: Observations, checkpoint: Checkpoint) -> None:
    saved = {**checkpoint.tensors, **_of_old(observations, checkpoint)}
    leaves = _leaves(observations)
    check_names(checkpoint.path, saved, [name for name, _ in leaves])
    if any(not np.array_equal(leaf, saved[name].numpy(), equal_nan=leaf.dtype.kind == "f") for name, leaf in leaves):
        warnings.warn(
            "The environments do not repeat themselves: the same seed and actions led elsewhere than before the "
            "run was stopped. Training goes on, but not as it would have without the interruption.",
            stacklevel=2,
        )


def _of_old(observations: Observations, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """What earlier versions have saved under names in which a key's own slashes were not told from ours."""
    names = zip(_leaves(observations), _leaves(observations, escape=str), strict=True)
    tensors = checkpoint.tensors
    return {new: tensors[old] for (new, _), (old, _) in names if new not in tensors and old in tensors}


def _escaped(key: object) -> str:
    """A key of a Dict space as a part of a tensor's name: no two keys are written alike."""
    text = key.replace("~", "~0") if isinstance(key, str) else f"~2{key!r}"
    return text.replace("/", "~1")


def _leaves(
    observations: Observations, path: str = "position", escape: Callable[[object], str] = _escaped
) -> list[tuple[str, Array]]:
    if isinstance(observations, dict):
        return [pair for key, leaf in observations.items() for pair in _leaves(leaf, f"{path}/{escape(key)}", escape)]
    return [(path, observations)]
