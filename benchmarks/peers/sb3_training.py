"""Train once with Stable-Baselines3, or with SBX, which has its interface, and print what it took as JSON.

Run by the Python of an environment that has the library; it knows nothing of envfleet.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

WINDOW = 100


def train(request: Mapping[str, Any]) -> dict[str, Any]:
    """Make the environments and the model, learn until the steps are done or the goals are reached."""
    library = request.get("library", "stable_baselines3")
    torch, _ = (importlib.import_module(name) for name in ("torch", library))
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    started = time.perf_counter()
    envs = _environments(request)
    goals = _goals(request)
    model = _model(request, envs)
    if library == "sbx":  # JAX compiles at the first update, which a longer run would not notice
        model.learn(_steps_to_first_update(request))
    ready = time.perf_counter()
    goals.clock = ready
    model.learn(request["total_steps"], callback=goals)
    seconds = time.perf_counter() - ready
    last = _mean_return(model)
    envs.close()
    return {
        "steps": int(model.num_timesteps),
        "seconds": seconds,
        "set_up_seconds": ready - started,
        "last_return": last,
        "reached": goals.reached,
        "curve": goals.curve,
        "plan": f"{request['vec_env']}, {torch.get_num_threads()} torch threads",
        "versions": {name: _version(name) for name in (library, "gymnasium", "torch", "numpy")},
    }


def _environments(request: Mapping[str, Any]) -> Any:
    vec_env = importlib.import_module("stable_baselines3.common.vec_env")
    make_vec_env = importlib.import_module("stable_baselines3.common.env_util").make_vec_env
    vec_env_cls = getattr(vec_env, request["vec_env"])
    return make_vec_env(request["env_id"], request["num_envs"], seed=request["seed"], vec_env_cls=vec_env_cls)


def _model(request: Mapping[str, Any], envs: Any) -> Any:
    algorithms = importlib.import_module(request.get("library", "stable_baselines3"))
    settings = dict(request["settings"])
    if request["anneal"]:
        rate = settings["learning_rate"]
        settings["learning_rate"] = lambda remaining: rate * remaining
    algorithm = getattr(algorithms, request["algo"].upper())
    return algorithm("MlpPolicy", envs, seed=request["seed"], device="cpu", **settings)


def _steps_to_first_update(request: Mapping[str, Any]) -> int:
    settings, num_envs = request["settings"], int(request["num_envs"])
    return int(settings.get("n_steps", 1)) * num_envs + int(settings.get("learning_starts", 0))


def _mean_return(model: Any) -> float | None:
    """Of the last 100 training episodes; None before so many have ended."""
    ended = model.ep_info_buffer
    return sum(episode["r"] for episode in ended) / len(ended) if len(ended) >= WINDOW else None


def _goals(request: Mapping[str, Any]) -> Any:
    callbacks = importlib.import_module("stable_baselines3.common.callbacks")

    class Goals(callbacks.BaseCallback):  # type: ignore[misc, name-defined]
        """Notes when each goal is reached; after the last one, or out of time, training ends."""

        def __init__(self) -> None:
            super().__init__()
            self.clock = 0.0
            self.reached: list[dict[str, float]] = []
            self.over = False
            self.curve: list[tuple[int, float, int]] = []

        def _on_step(self) -> bool:
            if request.get("curve"):
                ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
                self.curve += [(self.num_timesteps, float(value), 1) for value in ended]
            return not self.over

        def _on_rollout_end(self) -> None:
            seconds, found = time.perf_counter() - self.clock, _mean_return(self.model)
            for goal in request["goals"][len(self.reached) :]:
                if found is None or found < goal:
                    break
                self.reached.append({"goal": goal, "seconds": seconds, "steps": self.num_timesteps})
            everything = bool(request["goals"]) and len(self.reached) == len(request["goals"])
            self.over = everything or seconds > request["most_seconds"]

    return Goals()


def _version(module: str) -> str:
    return str(importlib.import_module(module).__version__)


if __name__ == "__main__":
    print(json.dumps(train(json.loads(sys.argv[1]))))
