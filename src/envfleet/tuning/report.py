"""The result of a tuning, as text."""

from __future__ import annotations

from statistics import median

from envfleet.tuning.results import Candidate, TuningResult

HEADINGS = ("", "what runs them", "steps/s", "lowest to highest", "x sync", "of ideal", "ready in")
"""The headings of the columns of ``rows``; the first column marks the winner."""

WINNER = "*"


def rows(result: TuningResult) -> list[tuple[str, ...]]:
    """Returns the cells of the table, one row per measured candidate, in order."""
    return [_row(result, candidate) for candidate in result.candidates if candidate.speeds]


def _row(result: TuningResult, candidate: Candidate) -> tuple[str, ...]:
    several = len({other.setup.num_envs for other in result.candidates}) > 1
    size = f"{candidate.setup.num_envs} x " if several else ""
    low, high = min(candidate.speeds), max(candidate.speeds)
    return (
        WINNER if candidate is result.best else "",
        f"{size}{candidate.setup.name}",
        _speed(candidate.steps_per_second),
        f"{_speed(low)} to {_speed(high)}" if len(candidate.speeds) > 1 else "-",
        _ratio(result.times_sync(candidate)),
        _ratio(result.of_ideal(candidate)),
        f"{candidate.seconds_to_make:.2f} s",
    )


def heading(result: TuningResult) -> str:
    """Returns a line that says what was measured."""
    sizes = sorted({candidate.setup.num_envs for candidate in result.candidates})
    amount = f"{', '.join(map(str, sizes[:-1]))} or {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
    cores = f"{result.cores} core{'s' if result.cores != 1 else ''}"
    return f"{amount} x {result.env.strip(chr(34))} on {cores}, random actions, {result.seconds:.0f} s"


def explanation(result: TuningResult) -> str:
    """Returns a line that explains the ideal."""
    bare = _speed(median(result.bare_speeds))
    if result.waits:
        return f"ideal: every environment waits for itself, {bare} steps/s each, at the same time"
    return f"ideal: {bare} steps/s of one environment alone, times the cores"


def advice(result: TuningResult) -> list[tuple[str, str]]:
    """Returns pairs of an introduction and the code to paste."""
    found = [("To paste:", result.code)]
    if result.best_to_step is not result.best:
        share = (result.best_to_step.steps_per_second or 0.0) / (result.best.steps_per_second or 1.0)
        found.append((f"For a plain step() loop, {share:.0%} of that speed:", result.code_of(result.best_to_step)))
    return found


def report(result: TuningResult) -> str:
    """Returns everything as plain text."""
    table = [HEADINGS, *rows(result)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = [heading(result), ""]
    for row in table:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines += ["", explanation(result), *result.notes]
    for introduction, code in advice(result):
        lines += ["", introduction, *(f"    {line}" for line in code.splitlines())]
    return "\n".join(lines)


def _speed(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
