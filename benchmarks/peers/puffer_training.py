"""Train once with PufferLib's PPO, in this process, and print what it took as JSON.

Run by the Python of an environment that has pufferlib-core. It takes Stable-Baselines3's names of settings and knows
nothing of envfleet. A rollout is cut into segments as long as a minibatch, which is what PufferLib learns from.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any


def train(request: Mapping[str, Any]) -> dict[str, Any]:
    """Train for so many steps."""
    # First what may be missing: its trainer has a compiled part that may have been linked with CUDA.
    importlib.import_module("pufferlib._C")
    pufferl, models = (importlib.import_module(f"pufferlib.{name}") for name in ("pufferl", "models"))
    torch = importlib.import_module("torch")
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    torch.manual_seed(request["seed"])
    started = time.perf_counter()
    envs = workers(request["env_id"], request["num_envs"])
    with tempfile.TemporaryDirectory() as directory, redirect_stdout(sys.stderr):
        policy = models.Default(envs.driver_env, hidden_size=64)
        trainer = pufferl.PuffeRL(_config(request, directory), envs, policy)
        ready = time.perf_counter()
        while trainer.global_step < request["total_steps"]:
            trainer.evaluate()
            trainer.train()
        seconds = time.perf_counter() - ready
        steps = int(trainer.global_step)
        trainer.close()
    return {
        "steps": steps,
        "seconds": seconds,
        "set_up_seconds": ready - started,
        "last_return": None,
        "reached": [],
        "plan": f"PuffeRL, {torch.get_num_threads()} torch threads",
        "versions": {"torch": str(torch.__version__)},
    }


def workers(env_id: str, num_envs: int) -> Any:
    """PufferLib's worker processes, as many as there are cores."""
    gymnasium = importlib.import_module("gymnasium")
    emulation, vector = (importlib.import_module(f"pufferlib.{name}") for name in ("emulation", "vector"))
    cores = len(os.sched_getaffinity(0))
    count = max(number for number in range(1, cores + 1) if num_envs % number == 0)

    def creator(buf: Any = None, seed: int = 0) -> Any:
        return emulation.GymnasiumPufferEnv(env=gymnasium.make(env_id), buf=buf, seed=seed)

    return vector.make(
        creator, num_envs=num_envs, num_workers=count, batch_size=num_envs, backend=vector.Multiprocessing
    )


def _config(request: Mapping[str, Any], directory: str) -> dict[str, Any]:
    settings = request["settings"]
    return {
        "env": request["env_id"],
        "seed": request["seed"],
        "device": "cpu",
        "torch_deterministic": True,
        "cpu_offload": False,
        "precision": "float32",
        "compile": False,
        "compile_mode": "default",
        "compile_fullgraph": False,
        "use_rnn": False,
        "optimizer": "adam",
        "total_timesteps": request["total_steps"],
        "batch_size": settings["n_steps"] * request["num_envs"],
        "bptt_horizon": settings["batch_size"],
        "minibatch_size": settings["batch_size"],
        "max_minibatch_size": settings["batch_size"],
        "update_epochs": settings["n_epochs"],
        "learning_rate": settings["learning_rate"],
        "anneal_lr": False,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-8,
        "gamma": settings["gamma"],
        "gae_lambda": settings["gae_lambda"],
        "clip_coef": settings["clip_range"],
        "vf_clip_coef": 1e9,
        "vf_coef": settings["vf_coef"],
        "ent_coef": settings["ent_coef"],
        "max_grad_norm": 0.5,
        "prio_alpha": 0.0,
        "prio_beta0": 1.0,
        "vtrace_rho_clip": 1.0,
        "vtrace_c_clip": 1.0,
        "checkpoint_interval": 10**9,
        "data_dir": directory,
    }


if __name__ == "__main__":
    print(json.dumps(train(json.loads(sys.argv[1]))))
