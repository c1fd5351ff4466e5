"""Train one seed of a study with Stable-Baselines3 and let it play: what came of it is printed as JSON.

Run by the Python of an environment that has the library; it knows nothing of envfleet. A run that was killed goes on
from its latest checkpoint. It writes `metrics.csv`, as envfleet's runs do.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CHECKPOINTS = 10
"""A run. What was learnt since the latest one is learnt again after a kill."""

ROWS = 200
"""Of metrics.csv, at most."""


def main(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Train, or go on with a run that was stopped, then play without exploring."""
    load_before = os.getloadavg()
    saved = Saved(folder, request)
    envs = _normalized(request, saved, _environments(request, request["num_envs"], request["seed"]))
    model = _model(request, saved, envs)
    done = saved.progress
    recorder = _recorder(saved, done, max(1, request["total_steps"] // CHECKPOINTS))
    left = request["total_steps"] - model.num_timesteps
    if left > 0:
        model.learn(left, callback=recorder, reset_num_timesteps=False)
        saved.save(model, done, recorder.seconds())
    seconds, steps = done["seconds"], int(model.num_timesteps)
    _write_metrics(folder / "metrics.csv", done["episodes"], steps, seconds)
    started = time.perf_counter()
    returns, lengths = _played(request, saved, model)
    last = [episode[1] for episode in done["episodes"][-100:]]
    return {
        "steps": steps,
        "training_seconds": seconds,
        "steps_per_second": steps / seconds,
        "training_return": sum(last) / len(last) if last else None,
        "plan": f"Stable-Baselines3, {request['num_envs']} environments in a DummyVecEnv",
        "backend": "DummyVecEnv",
        "evaluation_seconds": time.perf_counter() - started,
        "returns": [float(value) for value in returns],
        "lengths": [int(value) for value in lengths],
        "load_before": load_before,
        "load_after": os.getloadavg(),
        "versions": {"stable_baselines3": str(importlib.import_module("stable_baselines3").__version__)},
    }


class Saved:
    """The checkpoints of a run: each in a folder of its own, and a file that names the latest one."""

    def __init__(self, folder: Path, request: Mapping[str, Any]) -> None:
        self._folder = folder
        self._latest = folder / "latest.json"
        self.progress: dict[str, Any] = {"seconds": 0.0, "episodes": []}
        self.checkpoint: Path | None = None
        if self._latest.exists():
            content = json.loads(self._latest.read_text())
            if content["request"] == dict(request):
                self.checkpoint, self.progress = folder / content["checkpoint"], content["progress"]
        if self.checkpoint is None:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._request = dict(request)

    def save(self, model: Any, progress: dict[str, Any], seconds: float) -> None:
        """Write a checkpoint; until it is complete, the one before counts."""
        progress["seconds"] = seconds
        target = self._folder / f"checkpoint-{model.num_timesteps}"
        target.mkdir(exist_ok=True)
        model.save(target / "model.zip")
        if hasattr(model, "replay_buffer"):
            model.save_replay_buffer(target / "replay.pkl")
        normalization = model.get_vec_normalize_env()
        if normalization is not None:
            normalization.save(str(target / "normalization.pkl"))
        content = {"request": self._request, "checkpoint": target.name, "progress": progress}
        temporary = self._latest.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        temporary.replace(self._latest)
        for other in self._folder.glob("checkpoint-*"):
            if other != target:
                shutil.rmtree(other)
        self.checkpoint = target


def _environments(request: Mapping[str, Any], count: int, seed: int) -> Any:
    make_vec_env = importlib.import_module("stable_baselines3.common.env_util").make_vec_env
    return make_vec_env(request["env_id"], count, seed=seed)


def _normalized(request: Mapping[str, Any], saved: Saved, envs: Any) -> Any:
    if not request["normalize"]:
        return envs
    vec_normalize = importlib.import_module("stable_baselines3.common.vec_env").VecNormalize
    if saved.checkpoint is not None:
        return vec_normalize.load(str(saved.checkpoint / "normalization.pkl"), envs)
    return vec_normalize(envs, gamma=request["hyperparameters"].get("gamma", 0.99))


def _model(request: Mapping[str, Any], saved: Saved, envs: Any) -> Any:
    algorithm = getattr(importlib.import_module("stable_baselines3"), request["algo"].upper())
    if saved.checkpoint is None:
        settings = {name: _value(value) for name, value in request["hyperparameters"].items()}
        return algorithm("MlpPolicy", envs, seed=request["seed"], device="cpu", **settings)
    model = algorithm.load(saved.checkpoint / "model.zip", env=envs, device="cpu")
    if hasattr(model, "replay_buffer"):
        model.load_replay_buffer(saved.checkpoint / "replay.pkl")
    return model


def _value(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("lin_"):
        first = float(value.removeprefix("lin_"))
        return lambda remaining: remaining * first
    return value


def _recorder(saved: Saved, done: dict[str, Any], every: int) -> Any:
    callbacks = importlib.import_module("stable_baselines3.common.callbacks")

    class Recorder(callbacks.BaseCallback):  # type: ignore[misc, name-defined]
        """Notes every episode, and saves the run between two rollouts."""

        def _on_training_start(self) -> None:
            self._before, self._started = done["seconds"], time.perf_counter()
            self._saved_at = self.num_timesteps

        def seconds(self) -> float:
            return float(self._before + time.perf_counter() - self._started)

        def _on_rollout_start(self) -> None:
            if self.num_timesteps - self._saved_at >= every:
                saved.save(self.model, done, self.seconds())
                self._saved_at = self.num_timesteps

        def _on_step(self) -> bool:
            ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
            done["episodes"] += [[self.num_timesteps, float(value), self.seconds()] for value in ended]
            return True

    return Recorder()


def _write_metrics(path: Path, episodes: Sequence[Sequence[float]], steps: int, seconds: float) -> None:
    """The mean return of the episodes of each stretch of the run."""
    lines, first = ["step,episodes,seconds,episode_return"], 0
    for row in range(1, ROWS + 1):
        end = steps * row / ROWS
        last = first
        while last < len(episodes) and episodes[last][0] <= end:
            last += 1
        if last > first:
            mean = sum(episode[1] for episode in episodes[first:last]) / (last - first)
            lines.append(f"{end:.0f},{last},{episodes[last - 1][2]:.3f},{mean:.6g}")
        first = last
    if len(lines) == 1:  # no episode has ended
        lines.append(f"{steps},0,{seconds:.3f},")
    path.write_text("\n".join([*lines, ""]))


def _played(request: Mapping[str, Any], saved: Saved, model: Any) -> tuple[Any, Any]:
    """Returns and lengths of episodes in environments of their own, without normalised rewards."""
    evaluation = importlib.import_module("stable_baselines3.common.evaluation")
    envs = _normalized(request, saved, _environments(request, min(10, request["episodes"]), 10_000 + request["seed"]))
    if request["normalize"]:
        envs.training, envs.norm_reward = False, False
    return evaluation.evaluate_policy(  # type: ignore[no-any-return]
        model, envs, request["episodes"], deterministic=True, return_episode_rewards=True
    )


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]), Path(sys.argv[2]))))
