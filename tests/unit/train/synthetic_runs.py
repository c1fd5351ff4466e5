"""Folders that look like finished runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from envfleet.train.running.metrics import MetricsWriter

Column = Any
"""Numbers, one per row; None for an empty cell."""


def make_config(folder: Path, algo: str, **config: Any) -> None:
    content = {"format": 1, "envfleet": "0.1.0", "algo": algo, "custom_networks": False, "config": config}
    (folder / "config.json").write_text(json.dumps(content))


def make_metrics(folder: Path, **columns: Column) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with MetricsWriter(folder / "metrics.csv") as writer:
        for cells in zip(*columns.values(), strict=True):
            writer.write(dict(zip(columns, cells, strict=True)))
    return folder


def make_run(
    folder: Path,
    *,
    algo: str = "a2c",
    env_id: str = "LunarLander-v3",
    seed: int = 0,
    rows: int = 50,
    interval: int = 1000,
    **config: Any,
) -> Path:
    """A run whose columns all rise and fall a little; every fifth row ended no episode."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(6, rows))
    returns = [None if row % 5 == 0 else value for row, value in enumerate(np.linspace(-200, 200, rows) + noise[0])]
    make_metrics(
        folder,
        step=range(interval, interval * (rows + 1), interval),
        steps_per_second=12_000 + 100 * noise[1],
        episode_return=returns,
        episode_length=[None if value is None else 100.0 for value in returns],
        actor_loss=noise[2],
        critic_loss=np.exp(noise[3]),
        entropy=np.linspace(1.4, 0.1, rows),
        learning_rate=np.linspace(1e-3, 0, rows),
    )
    make_config(folder, algo, env_id=env_id, seed=seed, **config)
    return folder
