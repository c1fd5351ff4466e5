"""`write_card`: a model card, Markdown with the metadata block that model hubs read; all numbers are the folder's."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envfleet.train.atomic_files import replacing
from envfleet.train.running.reporting import duration, score
from envfleet.train.sharing.facts import Facts, Score, read_facts

CARD_FILE = "README.md"


def write_card(run_dir: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write a model card for a run: what was trained, how well it does, how to use it.

    Args:
        run_dir: the run's folder.
        path: where to; by default README.md in the run's folder, where model hubs look for it.

    Returns:
        The path written to.
    """
    folder = Path(run_dir)
    target = Path(path) if path is not None else folder / CARD_FILE
    facts = read_facts(folder)
    if facts.setting("env_id") is None:
        raise FileNotFoundError(f"{folder} has no config.json, so nobody knows what was trained there.")
    text = "\n".join([*_metadata(facts), "", *_text(facts, target.parent), ""])
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return target


def _metadata(facts: Facts) -> Iterator[str]:
    """The block at the top, YAML: strings as JSON writes them, which YAML reads too."""
    env, algo = str(facts.setting("env_id")), str(facts.setting("algo"))
    tags = [env, algo, "deep-reinforcement-learning", "reinforcement-learning", "envfleet"]
    yield "---"
    yield "library_name: envfleet"
    yield "pipeline_tag: reinforcement-learning"
    yield "tags:"
    yield from (f"- {_quoted(tag)}" for tag in tags)
    found = facts.evaluation
    if found is not None:
        spread = "" if found.std is None else f" +/- {found.std:.2f}"
        yield "model-index:"
        yield f"- name: {_quoted(facts.title)}"
        yield "  results:"
        yield "  - task:"
        yield "      type: reinforcement-learning"
        yield "      name: reinforcement-learning"
        yield "    dataset:"
        yield f"      name: {_quoted(env)}"
        yield f"      type: {_quoted(env)}"
        yield "    metrics:"
        yield "    - type: mean_reward"
        yield f"      value: {_quoted(f'{found.mean:.2f}{spread}')}"
        yield "      name: mean_reward"
        yield "      verified: false"
    yield "---"


def _text(facts: Facts, beside: Path) -> Iterator[str]:
    yield f"# {_plain(facts.title)}"
    yield ""
    yield _what(facts)
    yield ""
    yield from _picture(facts, beside)
    yield "## How well it does"
    yield ""
    yield from _scores(facts)
    yield "## Use it"
    yield ""
    yield from _use(facts)
    yield "## How it was trained"
    yield ""
    yield "```json"
    yield json.dumps({name: json.loads(text) for name, text in sorted(facts.run.settings.items())}, indent=2)
    yield "```"


def _what(facts: Facts) -> str:
    by = "envfleet" if facts.version is None else f"envfleet {_plain(facts.version)}"
    spent = "" if facts.seconds is None else f" in {duration(facts.seconds)} (h:mm:ss or m:ss)"
    seed = "" if facts.run.seed is None else f", seed {_plain(facts.run.seed)}"
    total = facts.setting("total_steps")
    planned = f" of {total:,} planned" if isinstance(total, int) and total > facts.steps else ""
    return f"Trained by {by}: {facts.steps:,}{planned} environment steps{spent}{seed}."


def _picture(facts: Facts, beside: Path) -> Iterator[str]:
    # A hub shows what lies beside the card; elsewhere it would be a broken picture.
    if facts.still is not None and facts.still.parent.resolve() == beside.resolve():
        yield f"![The best of its filmed episodes]({facts.still.name})"
        yield ""
    if facts.film is not None and facts.film.parent.resolve() == beside.resolve():
        yield f"Film: [{facts.film.name}]({facts.film.name})"
        yield ""


def _scores(facts: Facts) -> Iterator[str]:
    found = facts.evaluation
    if found is None and facts.best is None:
        yield "It was not evaluated."
    else:
        yield "| | mean return | 95 % interval | deviation | worst | best | episodes |"
        yield "|---|---:|---:|---:|---:|---:|---:|"
        if found is not None:
            yield _score_row("after the training", found)
        if facts.best is not None:
            when = "" if facts.best.step is None else f" at step {facts.best.step:,}"
            yield _score_row(f"best evaluation during the training{when}", facts.best)
    yield ""
    if facts.end_return is not None:
        yield f"With exploration, in the last tenth of the training: {score(facts.end_return)} on average."
        yield ""
    if facts.scenarios:
        yield "| scenario | mean return | 95 % interval | deviation | worst | best | episodes |"
        yield "|---|---:|---:|---:|---:|---:|---:|"
        for point in facts.scenarios:
            label = f"{point.parameter} = {point.value}"
            yield f"| {_plain(label)} | refused | | | | | |" if point.score is None else _score_row(label, point.score)
        yield ""


def _score_row(label: str, found: Score) -> str:
    def cell(value: float | None) -> str:
        return "" if value is None else score(value)

    ends = "" if found.half is None else f"{score(found.mean - found.half)} to {score(found.mean + found.half)}"
    cells = [score(found.mean), ends, cell(found.std), cell(found.worst), cell(found.best), str(found.episodes)]
    return f"| {_plain(label)} | {' | '.join(cells)} |"


def _use(facts: Facts) -> Iterator[str]:
    if facts.history.get("wrap"):
        yield "It was trained with vector wrappers of its author's own: `load_agent` needs `wrap=`."
        yield ""
    if facts.run.settings.get("custom_networks") == "true":
        yield "It has networks of its author's own: `load_agent` needs `networks=`."
        yield ""
    yield '`pip install "envfleet[train]"`, then with this folder as `RUN`:'
    yield ""
    yield "```python"
    yield "from envfleet.train import evaluate, load_agent"
    yield ""
    yield 'agent = load_agent("RUN")'
    yield "print(evaluate(agent, episodes=100).mean_return)"
    yield "actions = agent.act(observations)  # a batch of observations, as the environment gives them"
    yield "```"
    yield ""


def _quoted(value: Any) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _plain(text: str) -> str:
    """Text that Markdown and HTML take as nothing but text."""
    escaped = re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(str(text).split()))
    return escaped.replace("&", "&amp;").replace("\\<", "&lt;").replace("\\>", "&gt;")
