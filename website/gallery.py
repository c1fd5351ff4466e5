"""The gallery of trained agents: film, curve, figures and command for each folder of benchmarks/learning/agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SRC_URI = "gallery.md"
AGENTS = Path(__file__).resolve().parents[1] / "benchmarks" / "learning" / "agents"

_TOP = """---
title: Trained agents
---

# Trained agents

For each task the best agent of [the learning studies](../benchmarks/learning/results/README.md): the seed that plays
best over 100 episodes, without exploring. A seed chosen for its score is no fair picture of an algorithm; the studies
have all of them.

"""

_END = """
## Play with one

The weights are in the repository. An agent plays, and is filmed, with

```sh
envfleet evaluate benchmarks/learning/agents/{name}
envfleet showcase benchmarks/learning/agents/{name}
```
"""


def page() -> str:
    """The page as Markdown, as if it were in docs/."""
    folders = sorted(path.parent for path in AGENTS.glob("*/agent.json"))
    return _TOP + "\n".join(_agent(folder) for folder in folders) + _END.format(name=folders[0].name)


def _agent(folder: Path) -> str:
    facts: dict[str, Any] = json.loads((folder / "agent.json").read_text(encoding="utf-8"))
    played = facts["evaluation"]
    algo = json.loads((folder / "config.json").read_text(encoding="utf-8"))["algo"].upper()
    place = f"../benchmarks/learning/agents/{folder.name}"
    interval = f"{played['interval_low']:.1f} to {played['interval_high']:.1f}"
    label = f"Film of the agent on {played['env_id']}"
    return f"""
## {played["env_id"]}

<div class="agent" markdown>
<video controls loop muted playsinline preload="metadata" src="{place}/film.mp4" aria-label="{label}"></video>

- mean return **{played["mean_return"]:.1f}**, 95 % interval {interval}
- from {played["min_return"]:.0f} to {played["max_return"]:.0f} over {played["episodes"]} episodes
- {algo}, {facts["steps"]:,} steps, seed {facts["seed"]}
- the film shows {facts["film"]}
</div>

```sh
{facts["command"]}
```

![Learning curve on {played["env_id"]}]({place}/curve.png)
"""
