"""The gallery: for each task the best agent that the studies have trained, to load, to play with and to watch.

python benchmarks/learning/gallery.py                       every task whose runs are in build/learning
python benchmarks/learning/gallery.py --env LunarLander-v3  one task

An agent's folder is that of a run, as small as it can be: configuration and weights of the actor. Its film, the curve
of its training, and in `agent.json` where it comes from and how well it plays lie beside them.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.report import table

from envfleet.train import evaluate, load_agent, showcase
from envfleet.train.folders.folder import RunFolder
from envfleet.train.running.reporting import score
from learning import pictures
from learning.results import ResultFolder, SeedResult, StudyResult
from learning.studies import STUDIES, episodes

HERE = Path(__file__).resolve().parent
AGENTS = HERE / "agents"
FILM, CURVE, FACTS = "film.mp4", "curve.png", "agent.json"
LARGEST_FILM = 1_000_000
"""Bytes. A film of more is made again with half the steps."""

_MOST_STEPS_FILMED = 500
_KEPT = ("format", "envfleet", "algo", "custom_networks", "config")
"""Of config.json: not what this machine's run was told besides."""


@dataclass(frozen=True)
class Trained:
    """One seed of a study with the folder of its run."""

    result: StudyResult
    found: SeedResult
    run_dir: Path

    @property
    def command(self) -> str:
        """What trains it again."""
        study = self.result.study
        return f"envfleet train {study.env_id} --algo {study.algo} --seed {self.found.seed}"


def main() -> int:
    """Make the folders of the tasks asked for, then the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    envs = list(dict.fromkeys(study.env_id for study in STUDIES))
    parser.add_argument("--env", nargs="+", choices=envs, default=envs, metavar="ENV", help=", ".join(envs))
    parser.add_argument("--work", type=Path, default=HERE.parents[1] / "build" / "learning", metavar="DIR")
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="DIR")
    parser.add_argument("--agents", type=Path, default=AGENTS, metavar="DIR", help="where the gallery is")
    options = parser.parse_args()
    folder = ResultFolder(options.results, quick=False)
    for env_id in options.env:
        trained = best_of(env_id, folder, options.work)
        if trained is None:
            print(f"{env_id}: no run of a study below {options.work}", file=sys.stderr)
        else:
            add(trained, folder, options.agents)
            print(f"{env_id}: {trained.result.study.name}, seed {trained.found.seed}", file=sys.stderr)
    (options.agents / "README.md").write_text(page_text(options.agents))
    return 0


def best_of(env_id: str, folder: ResultFolder, work: Path) -> Trained | None:
    """The seed that played best of all studies of a task whose runs are still there."""
    results = [folder.read(study) for study in STUDIES if study.env_id == env_id]
    there = [
        Trained(result, found, run_dir)
        for result in results
        for found in result.seeds
        if RunFolder(run_dir := work / result.study.name / f"seed{found.seed}").actor.exists()
    ]
    return max(there, key=lambda trained: trained.found.mean_return, default=None)


def add(trained: Trained, folder: ResultFolder, agents: Path) -> None:
    """Write one agent's folder anew; refused if the weights do not play as the study says."""
    target = agents / slug(trained.result.study.env_id)
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    source, copied = RunFolder(trained.run_dir), RunFolder(target)
    shutil.copyfile(source.actor, copied.actor)
    content = json.loads(source.config.read_text())
    kept = {name: content[name] for name in _KEPT if name in content}
    copied.config.write_text(json.dumps(kept, indent=2) + "\n")
    played = evaluate(target, episodes=episodes(quick=False), backend="native").to_json_dict()
    if not math.isclose(played["mean_return"], trained.found.mean_return, rel_tol=1e-6):
        shutil.rmtree(target)
        raise ValueError(
            f"{trained.run_dir} plays with a mean return of {played['mean_return']}, the results say "
            f"{trained.found.mean_return}: it is another run; run the study again."
        )
    facts = {
        "study": trained.result.study.name,
        "seed": trained.found.seed,
        "steps": trained.found.steps,
        "command": trained.command,
        "film": _film(target),
        "evaluation": played,
    }
    (target / FACTS).write_text(json.dumps(facts, indent=2) + "\n")
    pictures.draw_seed(trained.result, trained.found.seed, folder, target / CURVE)


def _film(target: Path) -> str:
    """Film one episode; returns what is to be said of it, or why there is none."""
    agent, steps = load_agent(target), _MOST_STEPS_FILMED
    film = target / FILM
    while True:
        try:
            shown = showcase(agent, episodes=1, path=film, max_steps=steps, progress=False)
        except Exception as error:  # whatever the renderer of an environment raises where there is no screen
            return f"not made: {type(error).__name__}: {' '.join(str(error).split())}"
        shown.still.unlink()
        if film.stat().st_size <= LARGEST_FILM or steps < 2:
            return f"the first {shown.lengths[0]} steps of an episode, return {score(shown.returns[0])}"
        steps //= 2


def slug(env_id: str) -> str:
    """An environment's name as that of a folder."""
    return env_id.lower().replace("/", "-")


def page_text(agents: Path) -> str:
    """The page of the gallery: every agent that is there."""
    header = ["task", "mean return", "95 %", "algorithm", "steps", "film", "curve", "to train it again"]
    rows = []
    for facts_file in sorted(agents.glob(f"*/{FACTS}")):
        name, facts = facts_file.parent.name, json.loads(facts_file.read_text())
        rows.append(_row(name, facts, filmed=(facts_file.parent / FILM).exists()))
    parts = [
        "# The best agents",
        "Written by `python benchmarks/learning/gallery.py` from the runs of the studies: for each task the seed that "
        "plays best, over 100 episodes without exploring. A seed chosen for its score is no fair picture of an "
        "algorithm; [the results](../results/README.md) have all of them.",
        table(header, rows),
        "An agent plays, and is filmed, with",
        "```sh\nenvfleet evaluate benchmarks/learning/agents/acrobot-v1\n"
        "envfleet showcase benchmarks/learning/agents/acrobot-v1\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _row(name: str, facts: dict[str, Any], *, filmed: bool) -> list[str]:
    found = facts["evaluation"]
    return [
        found["env_id"],
        f"{found['mean_return']:.1f}",
        f"{found['interval_low']:.1f} to {found['interval_high']:.1f}",
        facts["study"],
        f"{facts['steps']:,}",
        f"[film]({name}/{FILM})" if filmed else "none",
        f"[curve]({name}/{CURVE})",
        f"`{facts['command']}`",
    ]


if __name__ == "__main__":
    sys.exit(main())
