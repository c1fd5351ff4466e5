"""A training run under way: collect, learn, count, and be able to stop and go on anywhere between two rollouts.

Environments cannot be saved, but they can be repeated. All of them are reset with a fresh derived seed every
`reseed_every` steps: a *stream*. A checkpoint holds the stream's number and the actions since its start, and going on
means resetting with that stream's seed and acting the same again. Same seed, same trajectory, on every backend.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from envfleet.errors import NonFiniteError
from envfleet.train.agent import Agent
from envfleet.train.algorithms.learner import Learner
from envfleet.train.collecting import Episode, EpisodeTracker, Position, Rollout, begin, collect
from envfleet.train.config import TrainConfig
from envfleet.train.environments import env_seed
from envfleet.train.finite import check_optimizers, check_weights
from envfleet.train.first_ready import FirstReady
from envfleet.train.folders.checkpoint import Checkpoint, problems_of, restore_generator, restore_learner
from envfleet.train.folders.weights import check_names, damage
from envfleet.train.networks.distributions import action_shape
from envfleet.train.running.evaluating import PeriodicEvaluation
from envfleet.train.running.journal import Journal, observation_leaves, stand_as_saved
from envfleet.train.running.metrics import LogInterval
from envfleet.train.running.reporting import Progress
from envfleet.train.running.spent import Spent
from envfleet.train.running.training_envs import TrainingEnvs
from envfleet.train.watch import Shielded, Watch, traced
from envfleet.train.wrapper_state import WrapperState, check_wrappers, load_state, packed, read_state, unpacked
from envfleet.train.wrapping import Wrapping, measured
from envfleet.wrappers._common import AnyVectorEnv

_REMEMBERED_EPISODES = 100
_REMEMBERED_RESTARTS = 50
_ROWS = 1000
_EPISODES_A_STREAM = 10
_SUCCESS = "is_success"
"""What environments with a goal call it in their last info, and everybody wants to see."""


@final
class Training:
    """The loop's state.

    Args:
        config: what the run was told.
        envs: the fleet; it belongs to the caller.
        learner: the algorithm.
        agent: its policy.
        evaluation: evaluates the policy now and then; None if that is not wanted.

    Attributes:
        rollouts: how many there are altogether.
        step: environment steps so far.
        seconds: spent so far, without evaluations.
        restarts: how often environments were made again after a failure.
        reached_goal: whether the return that the run was to stop at was reached.
    """

    def __init__(
        self,
        config: TrainConfig,
        envs: AnyVectorEnv,
        learner: Learner,
        agent: Agent,
        evaluation: PeriodicEvaluation | None = None,
    ) -> None:
        self._config, self._envs, self._learner, self._agent = config, envs, learner, agent
        self._evaluation = evaluation
        self._tell_resets = bool(getattr(learner, "needs_resets", False))
        if self._tell_resets and config.first_ready:
            raise ValueError(
                f"first_ready={config.first_ready} does not go together with {type(learner).__name__}, which must know "
                "where episodes begin: leave first_ready at 0."
            )
        takes_some = config.first_ready > 0 and learner.off_policy
        self._rollout_size = config.first_ready if takes_some else learner.rollout_steps * config.num_envs
        if config.total_steps < self._rollout_size:
            raise ValueError(
                f"total_steps={config.total_steps} is less than one rollout of {config.num_envs} environments "
                f"x {learner.rollout_steps} steps; give at least {self._rollout_size}."
            )
        self.rollouts = config.total_steps // self._rollout_size
        self._log_every = max(self._rollout_size, config.total_steps // _ROWS)
        self._stream_steps = _stream_steps(config, envs)
        self._tracker = EpisodeTracker(config.num_envs)
        self._recent: deque[float] = deque(maxlen=_REMEMBERED_EPISODES)
        self._interval = LogInterval()
        self._watch = Watch(
            config.non_finite, config.num_envs, config.reward_scale, normalizes=config.normalize_rewards
        )
        # What a learner acts by is its own business; some have a compiled form of it.
        self._act = Shielded(learner.act, getattr(learner, "compiled_policy", None))
        self._info_names = tuple(dict.fromkeys((_SUCCESS, *config.info_metrics)))
        self._first_ready = FirstReady(envs, self._info_names) if config.first_ready else None
        self._measured = measured(envs)
        self._wrappers_at_start: WrapperState = {}
        """What the user's wrappers had learnt when the stream under way began."""
        self._journal = Journal()
        self._open_envs = TrainingEnvs(envs, self._journal.note_attribute)
        self._position: Position | None = None
        self._done_rollouts = self._stream = self._episodes = 0
        self._spent = Spent()
        self._restarted: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED_RESTARTS)
        self.step = 0
        self.seconds = 0.0
        self.restarts = 0
        self.reached_goal = False

    @property
    def planned_steps(self) -> int:
        """What `total_steps` comes to in whole rollouts."""
        return self.rollouts * self._rollout_size

    @property
    def finished(self) -> bool:
        """Whether another rollout would exceed `total_steps`, or the return to stop at was reached."""
        return self.reached_goal or self._done_rollouts >= self.rollouts

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes."""
        return float(np.mean(self._recent)) if self._recent else None

    @property
    def wrapping(self) -> Wrapping | None:
        """The user's vector wrappers around the environments, if there are any."""
        return self._agent.wrapping

    def load_wrappers(self, state: WrapperState | None) -> None:
        """Let the user's wrappers begin with what those of another run have learnt; None is nothing."""
        if state is not None and self._measured is not None:
            load_state(self._measured, state)

    def advance(self) -> Progress | None:
        """Collect one rollout and learn from it; returns where the run stands if it is time to log."""
        started = time.perf_counter()
        if not self._interval.steps:  # a callback has had the networks in its hands
            self._check_weights()
        rollout = self._collect(self._current_position())
        collected = time.perf_counter()
        checked = self._watch.checked(rollout, self.step)
        metrics = self._learn(checked)
        self._spent.note(collected - started, time.perf_counter() - collected)
        self._position = rollout.end
        episodes = self._count(rollout, checked)
        elapsed = time.perf_counter() - started
        self.seconds += elapsed
        ended = [(episode.episode_return, episode.length) for episode in episodes]
        self._interval.add(rollout.transitions, elapsed, metrics, ended)
        self._judge(self.step - rollout.transitions)
        is_over = self._interval.steps + self._interval.restarts >= self._log_every or self.finished
        # There is nothing to say of an interval in which every environment was restarted.
        return self._logged() if is_over and self._interval.steps else None

    def _count(self, rollout: Rollout, checked: Rollout) -> list[Episode]:
        """Note what happened in a rollout; returns the episodes that ended."""
        if self._first_ready is None:
            self._journal.add(rollout.actions)
        if self._measured is not None:
            rollout, checked = self._measured.as_given(rollout), self._measured.as_given(checked)
        if rollout.restarted is not None:
            restarts = int(np.count_nonzero(rollout.restarted))
            self.restarts += restarts
            self._journal.restarts += restarts
            self._interval.restarts += restarts
            self._restarted.extend({"step": self.step, "env": env, "cause": why} for env, why in rollout.restart_causes)
        episodes = self._tracker.finished(rollout, checked)
        for episode in episodes:
            for name, value in episode.infos.items():
                if not math.isnan(value):
                    self._interval.note(name, value)
        self._recent.extend(episode.episode_return for episode in episodes)
        self._episodes += len(episodes)
        self._done_rollouts += 1
        self.step += rollout.transitions
        return episodes

    def _judge(self, step_before: int) -> None:
        """Evaluate if it is time, and see whether the return to stop at was reached."""
        goal = self._config.stop_at_return
        if self._evaluation is not None:
            if not self.finished and not self._evaluation.is_due(step_before, self.step):
                return
            score = self._evaluation.run(self.step)
            self._interval.note("eval_return", score)
        elif self.mean_return is None or len(self._recent) < _REMEMBERED_EPISODES:
            return
        else:
            score = self.mean_return
        self.reached_goal = goal is not None and score >= goal

    def _collect(self, position: Position) -> Rollout:
        if self._measured is not None:
            self._measured.forget()
        act = self._spent.policy or self._act
        try:
            if self._first_ready is None:
                steps, names = self._learner.rollout_steps, self._info_names
                return collect(self._envs, act, steps, position, names, tell_resets=self._tell_resets)
            if self._learner.off_policy:
                return self._first_ready.first_results(act)
            return self._first_ready.steps_of_all(act, self._learner.rollout_steps)
        except NonFiniteError as error:
            raise traced(error, self._learner, None, self.step) from error

    def live(self) -> dict[str, Any]:
        """What the run does now, for those who watch it: where it stands, what takes the time, every environment."""
        under_way, table = self._tracker.state(), self._open_envs.parameters
        pairs = zip(under_way["returns"], under_way["lengths"], strict=True)
        envs = [{"return": total, "length": length} for total, length in pairs]
        for env, told in enumerate(envs if table else ()):
            told["parameters"] = {name: _shown(column[env]) for name, column in (table or {}).items()}
        return {
            "step": self.step,
            "total_steps": self._config.total_steps,
            "seconds": self.seconds,
            "parts": self._spent.parts(self.step),
            "envs": envs,
            "restarts": list(self._restarted),
        }

    def picture_of(self, env: int) -> Any:
        """What an environment looks like now."""
        return self._open_envs.call("render", indices=[env])[0]

    def measure_policy(self, wanted: bool) -> None:
        """Measure what the policy takes of the time, or leave that."""
        self._spent.measure(self._act if wanted else None)

    def _learn(self, rollout: Rollout) -> dict[str, float]:
        try:
            return self._learner.learn(rollout, self._done_rollouts / self.rollouts)
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
        tensors = self._journal.tensors()
        if self._position is not None:
            tensors |= {name: torch.from_numpy(leaf) for name, leaf in observation_leaves(self._position.observations)}
        wrappers = {}
        if self._measured is not None:
            both = {"start": self._wrappers_at_start, "now": read_state(self._measured)}
            tree, more = packed(both, "wrappers")
            tensors |= more
            wrappers = {"wrappers": tree}
        notes = {
            **wrappers,
            "step": self.step,
            "seconds": self.seconds,
            "rollouts": self._done_rollouts,
            "stream": self._stream,
            "episodes": self._episodes,
            "recent": list(self._recent),
            "tracker": self._tracker.state(),
            "interval": self._interval.state(),
            "watch": self._watch.state(),
            "journal": self._journal.notes(),
            "restarts": self.restarts,
            "reached_goal": self.reached_goal,
            "evaluation": None if self._evaluation is None else self._evaluation.state(),
        }
        return tensors, notes

    def restore(self, checkpoint: Checkpoint, *, extended: bool = False) -> None:
        """Go on from a checkpoint: learner, counters, and the environments by acting the same again.

        Args:
            checkpoint: what was saved.
            extended: whether the run is to go on for more steps than it was told at first.
        """
        self._check(checkpoint)
        notes = checkpoint.notes
        self.step, self.seconds = notes["step"], notes["seconds"]
        self._done_rollouts, self._stream, self._episodes = notes["rollouts"], notes["stream"], notes["episodes"]
        self._recent.extend(notes["recent"])
        self._tracker.load_state(notes["tracker"])
        self._interval = LogInterval.from_state(notes["interval"])
        if "watch" in notes:  # earlier versions wrote none
            self._watch.load_state(notes["watch"])
        self.restarts = notes.get("restarts", 0)
        self.reached_goal = notes.get("reached_goal", False) and not extended
        if self._evaluation is not None and notes.get("evaluation") is not None:
            self._evaluation.load_state(notes["evaluation"])
        # Where episodes are dropped, all of them may have been.
        learned = self._config.non_finite == "stop" and self._learner.has_learned(notes["step"])
        restore_learner(self._learner, checkpoint, learned=learned)
        self._check_weights()
        wrappers = self._restore_wrappers(checkpoint)
        if self._done_rollouts == 0 or self.finished:  # saved before anything was done, or there is nothing more to do
            return
        self._journal.restore(checkpoint)
        if self._first_ready is None:
            # The same rewards and observations lead the wrappers from where they began to where they were.
            self.load_wrappers(self._wrappers_at_start or None)
            self._return_to(checkpoint)
            self.load_wrappers(wrappers)
        else:  # actions under way are lost with the process that awaited them: episodes begin anew
            self._stream += 1
            self._journal.set_attributes(self._envs)
            self._position = self._begin_stream()
        # Last, because making and replaying environments must not move torch's generator.
        restore_generator(checkpoint)

    def _restore_wrappers(self, checkpoint: Checkpoint) -> WrapperState | None:
        """Let the user's wrappers know what they had learnt when the checkpoint was written, which is returned."""
        if self._measured is None:
            return None
        try:
            both = unpacked(checkpoint.notes["wrappers"], checkpoint.tensors)
            self._wrappers_at_start, now = dict(both["start"]), dict(both["now"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise damage(checkpoint.path, f"it lacks the state of the wrappers ({error!r})") from error
        check_wrappers(self._measured, now)
        try:
            load_state(self._measured, now)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            what = f"the state of the wrappers does not fit ({str(error).rstrip('.')})"
            raise damage(checkpoint.path, what) from error
        return now

    def _return_to(self, checkpoint: Checkpoint) -> None:
        """Have the environments act the same again."""
        position = self._journal.replay(self._envs, env_seed(self._config.seed, self._stream))
        restarts = self._journal.restarts
        self._position, reset = stand_as_saved(self._envs, position, checkpoint, restarts)
        self._tracker.restart(reset)
        self._watch.restart(reset)

    def _check(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint that this run cannot have written."""
        notes, path = checkpoint.notes, checkpoint.path
        problems = [*problems_of(notes, self._config.num_envs)]
        if not problems and notes["rollouts"] > self.rollouts:
            problems.append(f"rollouts must be at most {self.rollouts}, got {notes['rollouts']}")
        if not problems and notes["step"] > notes["rollouts"] * self._rollout_size:
            problems.append(f"step must be at most {notes['rollouts'] * self._rollout_size}, got {notes['step']}")
        if problems:
            raise damage(path, "; ".join(problems))
        if notes["rollouts"] and self._first_ready is None:
            check_names(path, checkpoint.tensors, ["journal"])
            self._check_journal(checkpoint.tensors["journal"], notes, path)

    def _check_journal(self, journal: Tensor, notes: Mapping[str, Any], path: Path) -> None:
        shape = (self._config.num_envs, *action_shape(self._envs.single_action_space))
        longest = notes["rollouts"] * self._learner.rollout_steps
        shortest = 1 if notes["stream"] else longest
        if tuple(journal.shape[1:]) != shape or not shortest <= len(journal) <= longest:
            steps = f"{shortest} to {longest}" if shortest < longest else f"{longest}"
            raise damage(path, f"the journal must hold {steps} steps of {shape}, got {tuple(journal.shape)}")

    def _current_position(self) -> Position:
        if self._position is not None and (not self._stream_steps or self._journal.steps < self._stream_steps):
            return self._position
        if self._position is not None:
            self._stream += 1
        return self._begin_stream()

    def _begin_stream(self) -> Position:
        if self._measured is not None:
            self._wrappers_at_start = read_state(self._measured)
        self._journal.begin_stream()
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
        if self._config.vector_kwargs.get("on_failure") == "restart":
            row["restarts"] = self.restarts
        if self._evaluation is not None:
            row.setdefault("eval_return", None)
        self._interval = LogInterval()
        return Progress(
            self.step,
            self._config.total_steps,
            self.seconds,
            self._episodes,
            self.mean_return,
            row,
            self._agent,
            self._open_envs,
            self.restarts,
            None if self._evaluation is None else self._evaluation.latest,
        )


def _shown(value: Any) -> Any:
    """A parameter as JSON holds it."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if isinstance(plain, (bool, int, float, str)) else repr(plain)


def _stream_steps(config: TrainConfig, envs: AnyVectorEnv) -> int:
    """Steps of each environment between two resets; several episodes must fit in, or long ones would never end."""
    limit = config.env_kwargs.get("max_episode_steps") or getattr(envs.spec, "max_episode_steps", None) or 0
    return max(config.reseed_every, _EPISODES_A_STREAM * limit) if config.reseed_every else 0
