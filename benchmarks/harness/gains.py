"""What programs of other libraries gain from a fleet: results/coming_from.json, and the tables in docs/coming_from.

Whoever measures calls ``publish``. A library has one entry, which the next measurement replaces.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from .machine import this_machine
from .report import table

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "results" / "coming_from.json"
PAGES = ROOT / "docs" / "coming_from"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass
class Result:
    """Steps per second of each turn, by side."""

    library: str
    what: str
    baseline: str
    speeds: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, side: str) -> float:
        """The median over the turns of how much faster than the baseline the side was."""
        return median(mine / other for mine, other in zip(self.speeds[side], self.speeds[self.baseline], strict=True))

    def text(self) -> str:
        """As a table."""
        rows = [
            [side, f"{median(speeds):,.0f}", f"{min(speeds):,.0f} to {max(speeds):,.0f}", f"{self.ratio(side):.2f}"]
            for side, speeds in self.speeds.items()
        ]
        return table([f"{self.library}: {self.what}", "steps/s", "turns", f"/ {self.baseline}"], rows)


def publish(results: Sequence[Result], command: str, fleet: str, load_before: Sequence[float]) -> None:
    """Keeps the results of one library, and writes them into its page.

    Args:
        results: One or more loops, with the same sides.
        command: What measured them: a file in benchmarks, and its arguments.
        fleet: How many of which environment.
        load_before: The load averages before it.
    """
    library = results[0].library
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    kept[library] = {
        "command": f"python benchmarks/{command}",
        "date": date.today().isoformat(),
        "fleet": fleet,
        "machine": asdict(this_machine()),
        "load_before": list(load_before),
        "load_after": list(os.getloadavg()),
        "results": [asdict(result) for result in results],
    }
    KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=2) + "\n")
    page = PAGES / f"{library}.md"
    page.write_text(updated(page.read_text(), section(kept[library])))


def section(entry: dict[str, Any]) -> str:
    """The table of one library, from what was kept of it."""
    results = [Result(**result) for result in entry["results"]]
    first, machine = results[0], entry["machine"]
    lines = [
        f"| {entry['fleet']}, steps/s | {' | '.join(result.what for result in results)} |",
        f"|---|{'---:|' * len(results)}",
    ]
    for side in first.speeds:
        cells = [f"{median(result.speeds[side]):,.0f} ({result.ratio(side):.2f})" for result in results]
        lines.append(f"| {side} | {' | '.join(cells)} |")
    turns = len(first.speeds[first.baseline])
    told = (
        f"Medians of {turns} turns on {machine['usable_cores']} cores ({machine['processor']}), {entry['date']}, load "
        f"{entry['load_before'][0]:.1f} before it. In brackets: how much faster than {first.baseline} in the same turn."
    )
    return "\n".join([BEGIN, *lines, "", told, END])


def updated(page: str, measured: str) -> str:
    """The page with the section in the place of the one before, or at the end of what it says of speed."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if pattern.search(page):
        return pattern.sub(lambda _: measured, page)
    before, heading, rest = page.partition("\n## How fast\n")
    if not heading:
        raise ValueError("the page has no place for the figures: no heading says How fast")
    speed, next_heading, after = rest.partition("\n## ")
    return f"{before}{heading}{speed.rstrip()}\n\n{measured}\n{next_heading}{after}"
