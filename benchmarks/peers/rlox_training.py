"""Train once with rlox, in this process, and print what it took as JSON.

Run by the Python of an environment that has rlox. It takes Stable-Baselines3's names of settings, runs Gymnasium's
environments, as rlox does with all but CartPole, and knows nothing of envfleet.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

# What it calls a setting, where that is another name; None: it has no such setting, and does what is asked for.
NAMES: dict[str, dict[str, str | None]] = {
    "a2c": {"normalize_advantage": "normalize_advantages", "use_rms_prop": None},
    "ppo": {"clip_range": "clip_eps"},
    "sac": {},
}
# What it does otherwise by default.
MORE: dict[str, dict[str, Any]] = {"a2c": {}, "ppo": {"anneal_lr": False, "clip_vloss": False}, "sac": {"hidden": 256}}


def train(request: Mapping[str, Any]) -> dict[str, Any]:
    """Train for so many steps."""
    torch, rlox = (importlib.import_module(name) for name in ("torch", "rlox"))
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    torch.manual_seed(request["seed"])
    algo = request["algo"]
    names = {name: NAMES[algo].get(name, name) for name in request["settings"]}
    settings = {names[name]: value for name, value in request["settings"].items() if names[name] is not None}
    started = time.perf_counter()
    algorithm = getattr(importlib.import_module(f"rlox.algorithms.{algo}"), algo.upper())
    model = algorithm(
        env_id=request["env_id"], n_envs=request["num_envs"], seed=request["seed"], **settings, **MORE[algo]
    )
    ready = time.perf_counter()
    model.train(request["total_steps"])
    seconds = time.perf_counter() - ready
    return {
        "steps": request["total_steps"],
        "seconds": seconds,
        "set_up_seconds": ready - started,
        "last_return": None,
        "reached": [],
        "plan": f"rlox, {torch.get_num_threads()} torch threads",
        "versions": {"rlox": str(rlox.__version__), "torch": str(torch.__version__)},
    }


if __name__ == "__main__":
    print(json.dumps(train(json.loads(sys.argv[1]))))
