"""The compiled learner against torch, and JAX: one minibatch of PPO, and when torch is the better learner.

Everything runs on one core and in processor time, which is the time that passes where nothing else runs.

python benchmarks/learner.py                          everything, on one core: a minute or two
python benchmarks/learner.py --publish                everything, into benchmarks/results and docs/learner.md
python benchmarks/learner.py --sections minibatch     the first time JAX is installed below build/peers
python benchmarks/learner.py --sections table --quick
python benchmarks/learner.py --json results.json      every figure as well
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from gymnasium import spaces
from harness.installation import PEERS_DIRECTORY, InstallationError, Peer, peer_python
from harness.pages import with_section
from harness.report import machine_text, table
from learning.jobs import machine_with_torch

from envfleet import _learner
from envfleet.train import Batch, PPOConfig
from envfleet.train.algorithms.compiled import CompiledPPO
from envfleet.train.algorithms.learner import Task
from envfleet.train.algorithms.ppo import PPO
from envfleet.train.algorithms.returns import gae
from envfleet.train.networks.networks import observe

SECTIONS = ("minibatch", "parts", "table")
PUBLISHED = Path(__file__).parent / "results" / "learner.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "learner.md"
FEATURES, ACTIONS = 8, 4
WIDTHS, BATCHES = (32, 64, 128, 256, 512), (64, 256, 1_024, 4_096)
JAX = Peer("jax", "jax==0.10.2")
JAX_PROGRAM = Path(__file__).parent / "peers" / "jax_minibatch.py"

Figures = dict[str, float]


def main() -> None:
    """Measure, print the tables, write the JSON."""
    options = parse_arguments()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    turns = 3 if options.quick else 15
    here = machine_with_torch()
    results: dict[str, Any] = {"machine": asdict(here), "kernels": _learner.kernel_names()}
    print(machine_text(here, os.getloadavg()), flush=True)
    measures: dict[str, Callable[[], Any]] = {
        "minibatch": lambda: minibatch_figures(turns, jax=not options.no_peers),
        "parts": lambda: parts_figures(turns),
        "table": lambda: table_figures(max(2, turns // 3)),
    }
    for section in options.sections:
        results[section] = measures[section]()
        print(f"\n{TEXTS[section](results[section])}", flush=True)
    for file in (options.json, PUBLISHED if options.publish else None):
        if file is not None:
            file.write_text(json.dumps(results, indent=2) + "\n")
    if options.publish:
        PAGE.write_text(published(PAGE.read_text(), results))


def published(page: str, results: Mapping[str, Any]) -> str:
    """The page with the tables of these results, and where they are from."""
    machine = results["machine"]
    source = f"Measured by `python benchmarks/learner.py --publish` on one core ({machine['processor']})."
    page = with_section(page, "learner source", source)
    for section in SECTIONS:
        page = with_section(page, f"learner {section}", TEXTS[section](results[section]))
    return page


def parse_arguments() -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--quick", action="store_true", help="few turns, for a first look")
    parser.add_argument("--publish", action="store_true", help="write the results and docs/learner.md: all sections")
    parser.add_argument("--no-peers", action="store_true", help="without JAX")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    if options.publish and (options.no_peers or set(options.sections) != set(SECTIONS)):
        parser.error("--publish needs every section and JAX")
    return options


def minibatch_figures(turns: int, *, jax: bool) -> Figures:
    """Microseconds a minibatch of 64 for every contestant, the median of interleaved turns."""
    hidden, minibatch, rows = (64, 64), 64, 2_048
    contestants: dict[str, Callable[[], float]] = {"torch": torch_turn(hidden, minibatch, rows)}
    for kernels in _learner.kernel_names():
        contestants[f"compiled, {kernels}"] = compiled_turn(hidden, minibatch, rows, kernels)
    peer = None
    if jax:
        try:
            peer = JaxProcess(hidden, minibatch, rows)
            contestants["jax, jit and scan"] = peer.turn
        except InstallationError as error:
            print(f"without JAX: {error}", file=sys.stderr)
    try:
        return interleaved(contestants, turns)
    finally:
        if peer is not None:
            peer.close()


def table_figures(turns: int) -> dict[str, Figures]:
    """Microseconds a minibatch by width and size of the minibatch: two hidden layers, on one core."""
    found = {}
    for width in WIDTHS:
        for minibatch in BATCHES:
            hidden, rows = (width, width), max(512, 2 * minibatch)
            contestants = {
                "torch": torch_turn(hidden, minibatch, rows),
                "compiled": compiled_turn(hidden, minibatch, rows, None),
            }
            found[f"{width} x {minibatch}"] = interleaved(contestants, turns)
    return found


def parts_figures(turns: int) -> Figures:
    """Milliseconds of the parts of one PPO update: 16 x 1,024 transitions, minibatches of 64, 4 epochs."""
    rows, minibatch, hidden = 16 * 1_024, 64, (64, 64)
    learner, batch = learner_and_batch(hidden, minibatch, rows)
    update = compiled_for(learner, None)
    loaded = update._loaded(batch)
    observations, actor = batch.observations, learner.actor
    numbers = np.random.default_rng(0).normal(size=(5, 1_024, 16))
    never = np.zeros((1_024, 16), np.bool_)

    @torch.no_grad()
    def log_probs() -> Any:
        return actor.distribution.log_prob(actor(observations), batch.actions)

    def count() -> None:
        observe(actor, observations)
        observe(learner.critic, observations)

    old = log_probs()
    loaded.remember_policy(two_threads=False)
    parts: dict[str, Callable[[], Any]] = {
        "values, torch": torch.no_grad()(lambda: learner.critic(observations)),
        "values, compiled": lambda: update.values(observations),
        "advantages, NumPy": lambda: gae(numbers[0], numbers[1], numbers[2], never, never, 0.99, 0.95),
        "old log-probabilities, torch": log_probs,
        "old log-probabilities, compiled": lambda: loaded.remember_policy(two_threads=False),
        "normalising observations, compiled": lambda: update._loaded(batch),
        "4 epochs, torch": lambda: [learner._epoch(batch, old, 0.01) for _ in range(4)],
        "4 epochs, compiled": lambda: [update.epoch(loaded, rows, 0.01) for _ in range(4)],
        "statistics of observations, torch": count,
    }
    return interleaved({name: timed(part, 1_000, 1) for name, part in parts.items()}, turns)


def interleaved(contestants: Mapping[str, Callable[[], float]], turns: int) -> Figures:
    """The median of each one's turns, which are taken in turn."""
    for turn in contestants.values():
        turn()
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, turn in contestants.items():
            taken[name].append(turn())
    return {name: statistics.median(figures) for name, figures in taken.items()}


def torch_turn(hidden: tuple[int, ...], minibatch: int, rows: int) -> Callable[[], float]:
    """A turn of torch: microseconds a minibatch of one epoch."""
    learner, batch = learner_and_batch(hidden, minibatch, rows)
    with torch.no_grad():
        old = learner.actor.distribution.log_prob(learner.actor(batch.observations), batch.actions)
    return timed(lambda: learner._epoch(batch, old, 0.01), rows, minibatch)


def compiled_turn(hidden: tuple[int, ...], minibatch: int, rows: int, kernels: str | None) -> Callable[[], float]:
    """The same of compiled code."""
    learner, batch = learner_and_batch(hidden, minibatch, rows)
    update = compiled_for(learner, kernels)
    loaded = update._loaded(batch)
    loaded.remember_policy(two_threads=False)
    return timed(lambda: update.epoch(loaded, len(batch), 0.01), rows, minibatch)


def compiled_for(learner: PPO, kernels: str | None) -> CompiledPPO:
    """Compiled code on the tensors of a learner."""
    networks = (learner.actor, learner.critic, learner.actor_optimizer, learner.critic_optimizer)
    return CompiledPPO(learner.config, *networks, kernels)


def timed(epoch: Callable[[], Any], rows: int, minibatch: int) -> Callable[[], float]:
    """A turn of an epoch: microseconds a minibatch."""

    def turn() -> float:
        started = time.process_time()
        epoch()
        return 1e6 * (time.process_time() - started) / (rows / minibatch)

    return turn


def learner_and_batch(hidden: tuple[int, ...], minibatch: int, rows: int) -> tuple[PPO, Batch]:
    """A fresh PPO, whose updates torch computes, and what it learns from."""
    config = PPOConfig("CartPole-v1", hidden_sizes=hidden, minibatch_size=minibatch, learner="torch", target_kl=0.0)
    torch.manual_seed(0)
    learner = PPO(config, Task(spaces.Box(-9, 9, (FEATURES,)), spaces.Discrete(ACTIONS), 8, torch.device("cpu")))
    generator = np.random.default_rng(0)
    observations = torch.from_numpy(generator.normal(size=(rows, FEATURES)).astype(np.float32))
    actions = torch.from_numpy(generator.integers(0, ACTIONS, rows))
    return copy.deepcopy(learner), Batch(
        observations, actions, torch.randn(rows), torch.randn(rows), torch.zeros(rows), 0.0
    )


@final
class JaxProcess:
    """JAX in a process and an environment of its own, which takes a turn whenever it is told to."""

    def __init__(self, hidden: tuple[int, ...], minibatch: int, rows: int) -> None:
        python = peer_python(JAX, PEERS_DIRECTORY / "jax", lambda text: print(text, file=sys.stderr))
        request = {"features": FEATURES, "actions": ACTIONS, "hidden": hidden, "minibatch": minibatch, "rows": rows}
        command = [python, str(JAX_PROGRAM), json.dumps(request)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self._read():
            raise InstallationError("JAX did not start")

    def turn(self) -> float:
        """Microseconds a minibatch."""
        assert self._process.stdin is not None
        self._process.stdin.write('{"epochs": 1}\n')
        self._process.stdin.flush()
        return float(self._read()["microseconds"])

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {}


def minibatch_text(figures: Figures) -> str:
    """A row a contestant."""
    rows = [[name, f"{value:,.0f}", f"{figures['torch'] / value:.1f}"] for name, value in figures.items()]
    return table(["one core, 64 transitions, two networks of 8-64-64", "µs a minibatch", "times torch"], rows)


def parts_text(figures: Figures) -> str:
    """A row a part."""
    rows = [[name, f"{value:,.2f}"] for name, value in figures.items()]
    return table(["one core, a PPO update from 16 x 1,024 transitions", "ms"], rows)


def table_text(figures: Mapping[str, Figures]) -> str:
    """Torch's time divided by compiled code's: widths down, minibatches across."""
    rows = []
    for width in WIDTHS:
        cells = [figures[f"{width} x {batch}"] for batch in BATCHES]
        rows.append([str(width), *(f"{cell['torch'] / cell['compiled']:.1f}" for cell in cells)])
    return table(["width", *(f"{batch:,}" for batch in BATCHES)], rows)


TEXTS: Mapping[str, Callable[[Any], str]] = {"minibatch": minibatch_text, "parts": parts_text, "table": table_text}
"""The table of each section."""

if __name__ == "__main__":
    main()
