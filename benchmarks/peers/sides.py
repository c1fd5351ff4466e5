"""Who trains: envfleet and Stable-Baselines3, each run in a process of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from envfleet.train.config import TrainConfig, config_to_dict

_HERE = Path(__file__).parent
OUR_SCRIPT = _HERE / "envfleet_training.py"
THEIR_SCRIPT = _HERE / "sb3_training.py"
PLAIN_SCRIPT = _HERE / "plain_training.py"


@dataclass(frozen=True)
class Limits:
    """When a run ends: after its steps, once its last goal is reached, or out of time.

    `goals` are mean returns of the last 100 training episodes, the lowest first.
    """

    total_steps: int
    goals: tuple[float, ...] = ()
    most_seconds: float = math.inf
    curve: bool = False
    """Whether every episode's return is wanted too."""


@dataclass(frozen=True)
class Reached:
    """A goal, with the seconds and the environment steps of training until then."""

    goal: float
    seconds: float
    steps: int


@dataclass(frozen=True)
class Outcome:
    """One run: environment steps, seconds of training, and seconds before that to make environments and networks."""

    seed: int
    steps: int
    seconds: float
    set_up_seconds: float
    last_return: float | None
    reached: tuple[Reached, ...]
    plan: str
    versions: Mapping[str, str] | None = None
    curve: tuple[tuple[float, float, float], ...] = ()
    """Environment steps, mean return, and of how many training episodes, in the order in which they ended."""

    @property
    def steps_per_second(self) -> float:
        """Without the time to set up."""
        return self.steps / self.seconds

    def seconds_to(self, goal: float) -> float:
        """Infinite if it was not reached."""
        return next((found.seconds for found in self.reached if found.goal == goal), math.inf)


@dataclass(frozen=True)
class Side(ABC):
    """Somebody who trains.

    Attributes:
        name: as it is printed.
    """

    name: str

    @abstractmethod
    def train(self, seed: int, limits: Limits) -> Outcome:
        """Train once."""


@final
@dataclass(frozen=True)
class Ours(Side):
    """envfleet."""

    config: TrainConfig

    def train(self, seed: int, limits: Limits) -> Outcome:
        """Train once."""
        config = replace(self.config, seed=seed, total_steps=limits.total_steps)
        return _outcome(seed, run_script(sys.executable, OUR_SCRIPT, our_request("train", config, limits)))


@final
@dataclass(frozen=True)
class Theirs(Side):
    """Stable-Baselines3.

    Attributes:
        python: the interpreter of an environment that has it.
        env_id: a registered id.
        algo: "a2c", "ppo" or "sac".
        num_envs: how many environments.
        settings: arguments of its algorithm.
        anneal: let the learning rate fall linearly to 0 over the run.
        vec_env: "DummyVecEnv" or "SubprocVecEnv".
        threads: torch's threads, 0 for its own choice.
        script: what trains.
    """

    python: str
    env_id: str
    algo: str
    num_envs: int
    settings: Mapping[str, Any]
    anneal: bool
    vec_env: str = "DummyVecEnv"
    threads: int = 1
    script: Path = THEIR_SCRIPT

    def train(self, seed: int, limits: Limits) -> Outcome:
        """Train once."""
        fields = ("env_id", "algo", "num_envs", "settings", "anneal", "vec_env", "threads")
        request = {name: getattr(self, name) for name in fields} | {"seed": seed} | _limits_request(limits)
        return _outcome(seed, run_script(self.python, self.script, request))


def variants(side: Theirs) -> tuple[Theirs, ...]:
    """The ways to run it: environments in this process or one process each, torch with one thread or its choice."""
    return tuple(
        replace(side, name=f"{vec_env}, {threads_text}", vec_env=vec_env, threads=threads)
        for vec_env in ("DummyVecEnv", "SubprocVecEnv")
        for threads, threads_text in ((1, "1 thread"), (0, "torch's threads"))
    )


def plain_loop(side: Theirs) -> Theirs:
    """The same settings in a loop in one file, on Gymnasium's SyncVectorEnv, in our own interpreter."""
    return replace(side, name="plain loop, 1 thread", python=sys.executable, script=PLAIN_SCRIPT)


def our_request(task: str, config: TrainConfig, limits: Limits) -> dict[str, Any]:
    """What envfleet's script is told."""
    return {"task": task, "algo": config.algo, "config": config_to_dict(config), **_limits_request(limits)}


def run_script(python: str, script: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a script with a request as JSON; its answer is its last line."""
    # Whoever limits this process's threads must not decide for the contestants.
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [python, str(script), json.dumps(request)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script.name} failed:\n{done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _limits_request(limits: Limits) -> dict[str, Any]:
    return {
        "total_steps": limits.total_steps,
        "goals": list(limits.goals),
        "most_seconds": limits.most_seconds,
        "curve": limits.curve,
    }


def _outcome(seed: int, answer: Mapping[str, Any]) -> Outcome:
    reached = tuple(Reached(**found) for found in answer["reached"])
    curve = tuple((step, value, episodes) for step, value, episodes in answer.get("curve", ()))
    return Outcome(**{**answer, "seed": seed, "reached": reached, "curve": curve})
