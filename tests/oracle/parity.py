"""The parity table of docs/native.md, made from the record of what the oracle tests compared.

python tests/oracle/parity.py    puts it there; `make oracle` makes the record first
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import record
from gymnasium.vector import AutoresetMode
from record import Comparison

PAGE = Path(__file__).parents[2] / "docs" / "native.md"
BEGIN, END = "<!-- parity: begin -->\n", "<!-- parity: end -->"
MOST_NAMES = 6


def parity_table(comparisons: Sequence[Comparison]) -> str:
    """One line an id: how it was compared, over how many numbers, and how equal it was."""
    lines = [
        "| id | as registered, seeds x steps | with other arguments | numbers compared | equality |",
        "|---|---|---|---:|---|",
    ]
    for env_id in dict.fromkeys(each.env_id for each in comparisons):
        own = [each for each in comparisons if each.env_id == env_id]
        plain = _extents([each for each in own if not each.arguments])
        varied = _extents([each for each in own if each.arguments])
        numbers = sum(each.numbers for each in own)
        equality = "every bit" if all(each.equal for each in own) else "**differs**"
        lines.append(f"| `{env_id}` | {plain} | {varied} | {numbers / 1e6:.1f} M | {equality} |")
    return "\n".join(lines) + "\n"


def _extents(comparisons: Sequence[Comparison]) -> str:
    """How much was compared; arguments that were compared equally long are named together."""
    found: dict[str, list[Comparison]] = {}
    for _, same in groupby(sorted(comparisons, key=_setting), _setting):
        several = list(same)
        found.setdefault(_extent(several), []).append(several[0])
    return "; ".join(f"{_names(those)}{extent}" for extent, those in found.items())


def _setting(comparison: Comparison) -> tuple[str, int, int, bool]:
    """What comparisons have in common that differ in their autoreset mode alone."""
    arguments = record.known_arguments(comparison.arguments)
    return arguments, -comparison.seeds, comparison.steps, comparison.steered


def _extent(comparisons: Sequence[Comparison]) -> str:
    first, modes = comparisons[0], {each.mode for each in comparisons}
    steered = ", steered" if first.steered else ""
    missing = modes != {mode.value for mode in AutoresetMode}
    return f"{first.seeds} x {first.steps:,}{steered}" + (f", {', '.join(sorted(modes))} only" if missing else "")


def _names(comparisons: Sequence[Comparison]) -> str:
    names = sorted({name for each in comparisons for name in each.arguments})
    if not names:
        return ""
    listed = f"{len(names)} arguments" if len(names) > MOST_NAMES else ", ".join(f"`{name}`" for name in names)
    return f"{listed}: " if len(comparisons) == 1 else f"{listed} in {len(comparisons)} combinations: "


def table_in(page: str) -> str:
    """The table that the page has."""
    return page.partition(BEGIN)[2].partition(END)[0]


def with_table(page: str, table: str) -> str:
    """The page with another table."""
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}{table}{END}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(), parity_table(record.read())))
