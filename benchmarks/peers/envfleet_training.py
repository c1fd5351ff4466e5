"""Train once with envfleet, in this process, and print what it took as JSON; or where its time goes.

python benchmarks/peers/envfleet_training.py '{"task": "profile", "algo": "a2c", "config": {...}, "rollouts": 20}'
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, final

import torch
from gymnasium.vector import VectorEnv, VectorWrapper

from envfleet.train import EpisodeTracker, Progress, Reporter, TrainConfig, TrainingResult, begin, collect, train
from envfleet.train.algorithms.learner import Learner
from envfleet.train.algorithms.registry import config_from_dict, make_learner
from envfleet.train.at_once import can_be_made_at_once
from envfleet.train.environments import env_seed, make_task, make_training_envs
from envfleet.train.watch import Shielded
from envfleet.wrappers._common import AnyVectorEnv

WINDOW = 100
_WARM_UP_ROLLOUTS = 2

Result = TypeVar("Result")


@final
class Clock(Reporter):
    """Takes the time from the first step until everything is saved, and notes where the environments ran."""

    started = ended = 0.0
    plan = ""

    def begin(self, config: TrainConfig, run_dir: Path, plan: str, step: int) -> None:  # noqa: ARG002
        """The run starts."""
        self.plan = plan
        self.started = time.perf_counter()

    def report(self, progress: Progress) -> None:
        """Nothing."""

    def end(self, result: TrainingResult | None) -> None:  # noqa: ARG002
        """The run is over."""
        self.ended = time.perf_counter()


@final
class Goals:
    """A callback that notes when each goal is reached; after the last one, or out of time, training ends."""

    def __init__(self, goals: list[float], most_seconds: float, clock: Clock) -> None:
        self._goals, self._most_seconds, self._clock = goals, most_seconds, clock
        self.reached: list[dict[str, float]] = []
        self.curve: list[tuple[int, float, int]] = []
        self._episodes = 0

    def __call__(self, progress: Progress) -> bool:
        """Whether to go on."""
        seconds = time.perf_counter() - self._clock.started
        ended, self._episodes = progress.episodes - self._episodes, progress.episodes
        returned = progress.row["episode_return"]
        if ended and returned is not None:
            self.curve.append((progress.step, returned, ended))
        found = progress.mean_return if progress.episodes >= WINDOW else None
        for goal in self._goals[len(self.reached) :]:
            if found is None or found < goal:
                break
            self.reached.append({"goal": goal, "seconds": seconds, "steps": progress.step})
        everything = bool(self._goals) and len(self.reached) == len(self._goals)
        return not everything and seconds <= self._most_seconds


def timed_training(request: Mapping[str, Any]) -> dict[str, Any]:
    """The run as users have it: with metrics, TensorBoard events, checkpoints and weights."""
    config = config_from_dict(request["algo"], request["config"])
    clock = Clock()
    goals = Goals(request["goals"], request["most_seconds"], clock)
    called = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        result = train(config, run_dir=Path(directory) / "run", reporter=clock, callback=goals)
    return {
        "steps": result.step,
        "seconds": clock.ended - clock.started,
        "set_up_seconds": clock.started - called,
        "last_return": result.mean_return,
        "reached": goals.reached,
        "curve": goals.curve if request.get("curve") else [],
        "plan": clock.plan,
    }


@final
class TimedSteps(VectorWrapper[Any, Any, Any]):
    """Adds up the seconds spent in the fleet."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.seconds = 0.0

    def step(self, actions: Any) -> Any:
        """One step of all environments."""
        started = time.perf_counter()
        result = self.env.step(actions)
        self.seconds += time.perf_counter() - started
        return result


@final
class Stopwatch:
    """Adds up the seconds spent in functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """The same function, timed."""

        def timed(*arguments: Any) -> Result:
            started = time.perf_counter()
            result = function(*arguments)
            self.seconds += time.perf_counter() - started
            return result

        return timed


def profile(request: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of the training loop by what it does.

    Where policy and environments are compiled, one call does all of collecting, and nobody can look into it.
    """
    config = config_from_dict(request["algo"], request["config"])
    torch.manual_seed(config.seed)
    if config.torch_threads:
        torch.set_num_threads(config.torch_threads)
    envs = make_training_envs(config)
    try:
        task = make_task(config, envs.single_observation_space, envs.single_action_space, None)
        learner = make_learner(config, task)
        return _profiled(config, envs, learner, request["rollouts"])
    finally:
        envs.close()


def _profiled(config: TrainConfig, envs: AnyVectorEnv, learner: Learner, rollouts: int) -> dict[str, Any]:
    policy, collecting, update, bookkeeping = (Stopwatch() for _ in range(4))
    act = Shielded(policy.around(learner.act), getattr(learner, "compiled_policy", None))
    at_once = can_be_made_at_once(envs, act)
    timed = TimedSteps(envs)
    fleet: Any = envs if at_once else timed
    tracker = EpisodeTracker(config.num_envs)
    collect_timed, learn, count = (
        collecting.around(collect),
        update.around(learner.learn),
        bookkeeping.around(tracker.finished),
    )
    position = begin(fleet, env_seed(config.seed, 0))
    for number in range(-_WARM_UP_ROLLOUTS, rollouts):
        if number == 0:
            # The first rollouts find caches cold and episodes young.
            policy.seconds = collecting.seconds = update.seconds = bookkeeping.seconds = timed.seconds = 0.0
        rollout = collect_timed(fleet, act, learner.rollout_steps, position)
        position = rollout.end
        learn(rollout, max(number, 0) / rollouts)
        count(rollout)
    parts = {
        "policy": policy.seconds,
        "engine": timed.seconds,
        "rest of collecting": collecting.seconds - policy.seconds - timed.seconds,
    }
    return {
        "steps": rollouts * learner.rollout_steps * config.num_envs,
        "seconds": {
            **({"policy and engine in one call": collecting.seconds} if at_once else parts),
            "update": update.seconds,
            "bookkeeping": bookkeeping.seconds,
        },
        "plan": getattr(envs.unwrapped, "plan", ""),
    }


TASKS = {"train": timed_training, "profile": profile}

if __name__ == "__main__":
    sent = json.loads(sys.argv[1])
    print(json.dumps(TASKS[sent["task"]](sent)))
