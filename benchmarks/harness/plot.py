"""A result as one picture: a panel a workload, a bar an engine, ours in colour, the ideal as a line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from .engines import BARE, ENGINES, LIMIT
from .tables import number
from .workloads import HEADLINE, Workload

OURS, OURS_NATIVE, THEIRS, IDEAL = "#d1495b", "#8d2f45", "#b8bdc7", "#2e4057"
COLUMNS = 3


def save_plot(result: dict[str, Any], path: Path) -> None:
    """Draw the workloads of the headline that were measured, without a policy."""
    from matplotlib.figure import Figure  # only who plots needs it

    shown = [each for each in result["throughput"] if Workload(**each["workload"]) in HEADLINE]
    shown = shown or [each for each in result["throughput"] if not each["workload"]["policy"]]
    columns = min(COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(6.0 * columns, 4.4 * rows), layout="constrained")
    for index, workload in enumerate(shown):
        _panel(figure.add_subplot(rows, columns, index + 1), workload, result["machine"]["usable_cores"])
    cores = result["machine"]["usable_cores"]
    figure.suptitle(
        f"Steps per second, more is better, logarithmic ({result['machine']['processor']}, {cores} cores, "
        f"{result['date']}); dashed: a plain Python loop on every core"
    )
    figure.savefig(path, dpi=80)


def _panel(axes: Any, workload: dict[str, Any], cores: int) -> None:
    found = {each["engine"]: each for each in workload["engines"] if not each["error"]}
    bars = sorted((each for name, each in found.items() if name != BARE), key=lambda each: float(each["median"]))
    labels = [ENGINES[each["engine"]].label for each in bars]
    medians = [each["median"] for each in bars]
    drawn = axes.barh(labels, medians, color=[_colour(each["engine"]) for each in bars], log=True)
    axes.bar_label(drawn, [number(median) for median in medians], padding=3, fontsize=8)
    if BARE in found:
        axes.axvline(found[BARE]["median"] * cores, color=IDEAL, linestyle="--", linewidth=1.2)
    axes.set_title(f"{workload['workload']['num_envs']} x {workload['workload']['env_id']}", fontsize=11)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_minor_formatter("")  # next to powers of ten, more numbers would overlap
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.5 * min(medians)) if medians else low, 3.0 * high)
    axes.spines[["top", "right"]].set_visible(False)
    for label in axes.get_yticklabels():
        if label.get_text().startswith("envfleet"):
            label.set_fontweight("bold")


def _colour(name: str) -> str:
    family = ENGINES[name].family
    if family == LIMIT:
        return IDEAL
    return {"envfleet": OURS, "envfleet native": OURS_NATIVE}.get(family, THEIRS)
