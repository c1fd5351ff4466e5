"""Who trains: envfleet and other libraries, each run in a process of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from harness.installation import InstallationError, telling_line

from envfleet.train.config import TrainConfig, config_to_dict

_HERE = Path(__file__).parent
OUR_SCRIPT = _HERE / "envfleet_training.py"
THEIR_SCRIPT = _HERE / "sb3_training.py"
PLAIN_SCRIPT = _HERE / "plain_training.py"
RLOX_SCRIPT = _HERE / "rlox_training.py"
PUFFER_SCRIPT = _HERE / "puffer_training.py"


class ScriptError(RuntimeError):
    """A script failed; `line` is what says most about it."""

    def __init__(self, text: str, line: str) -> None:
        super().__init__(text)
        self.line = line


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
    """Stable-Baselines3, or whoever takes its names of settings.

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
        library: what it imports, where the script can do with several.
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
    library: str = "stable_baselines3"

    @property
    def is_rival(self) -> bool:
        """Whether it is another library, which may not be able to run here."""
        return self.library != "stable_baselines3" or self.script not in (THEIR_SCRIPT, PLAIN_SCRIPT)

    def train(self, seed: int, limits: Limits) -> Outcome:
        """Train once."""
        fields = ("env_id", "algo", "num_envs", "settings", "anneal", "vec_env", "threads", "library")
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
    return replace(side, name="plain torch loop, as CleanRL's", python=sys.executable, script=PLAIN_SCRIPT)


def rivals(side: Theirs, python_of: Callable[[str], str]) -> Iterator[tuple[str, Theirs | str]]:
    """Other libraries with the same settings, by name; where one cannot take part, why.

    Args:
        side: Stable-Baselines3 with these settings.
        python_of: the interpreter of a peer, installed if need be; raises an InstallationError where that fails.
    """
    known: dict[str, tuple[str, set[str], dict[str, Any]]] = {
        "SBX (JAX)": ("sbx", {"ppo", "sac"}, {"library": "sbx"}),
        "PufferLib's trainer": ("pufferlib", {"ppo"}, {"script": PUFFER_SCRIPT}),
        "PufferLib's workers, plain torch loop": (
            "pufferlib",
            {"a2c", "ppo"},
            {"script": PLAIN_SCRIPT, "vec_env": "pufferlib", "library": "pufferlib"},
        ),
        "rlox": ("rlox", {"a2c", "ppo", "sac"}, {"script": RLOX_SCRIPT}),
    }
    for name, (peer, algos, changes) in known.items():
        if side.algo not in algos:
            yield name, f"has no {side.algo.upper()}"
            continue
        try:
            yield name, replace(side, name=name, python=python_of(peer), **changes)
        except InstallationError as error:
            yield name, str(error)


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
        raise ScriptError(f"{script.name} failed:\n{done.stderr.strip()}", telling_line(done.stderr))
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
