"""The recipe for Spinning Up collects what its MPI workers would, each with one environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from coming_from import blocks_of

import envfleet

WORKERS, EPOCHS, STEPS, SEED = 3, 2, 60, 7


def recipe() -> Any:
    """The function of the page, without the lines that try it."""
    (block,) = blocks_of("spinning_up")
    found: dict[str, Any] = {}
    exec(block.values[0].partition("\nn, seed = ")[0], found)
    return found["collect"]


def worker(rank: int) -> list[dict[str, Any]]:
    """What one worker's loop stores in each epoch; its actions come from a generator of its own."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=12)
    generator = np.random.default_rng(rank)
    o, _ = env.reset(seed=SEED + 10000 * rank)
    epochs = []
    for _ in range(EPOCHS):
        rows: dict[str, list[Any]] = {key: [] for key in ("obs", "act", "rew", "last", "end", "bootstrap")}
        for t in range(STEPS):
            a = int(generator.integers(0, 2))
            next_o, r, terminated, truncated, _ = env.step(a)
            end = terminated or truncated or t == STEPS - 1
            row = {"obs": o, "act": a, "rew": r, "last": next_o, "end": end, "bootstrap": end and not terminated}
            for key, value in row.items():
                rows[key].append(value)
            o = env.reset()[0] if end else next_o
        epochs.append({key: np.array(values) for key, values in rows.items()})
    env.close()
    return epochs


@pytest.mark.parametrize("backend", ["sync", "process", "native"])
def test_the_recipe_collects_what_workers_do(backend: str) -> None:
    collect = recipe()
    expected = [worker(rank) for rank in range(WORKERS)]
    generators = [np.random.default_rng(rank) for rank in range(WORKERS)]
    envs = envfleet.make_vec("CartPole-v1", WORKERS, backend, autoreset_mode="DISABLED", max_episode_steps=12)
    o, _ = envs.reset(seed=[SEED + 10000 * rank for rank in range(WORKERS)])
    for epoch in range(EPOCHS):
        act = lambda o: np.array([generator.integers(0, 2) for generator in generators])  # noqa: E731
        data, o = collect(envs, o, act, STEPS)
        for rank in range(WORKERS):
            for key, rows in expected[rank][epoch].items():
                np.testing.assert_array_equal(data[key][:, rank], rows, err_msg=f"{key} of worker {rank}")
        assert data["end"].sum() > 2 * WORKERS
        assert 0 < data["bootstrap"].sum() < data["end"].sum()
    envs.close()
