"""The studies' figures as text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from harness.report import table

from .aggregates import stratified_interval
from .pictures import OVERVIEW, curves_of, name_of, task_picture
from .published import published_for
from .results import SeedResult, StudyResult
from .studies import Study


def seeds_text(results: Sequence[StudyResult]) -> str:
    """One line per seed."""
    header = ["study", "seed", "mean return", "95 %", "worst", "best", "length", "bar", "met", "steps", "seconds"]
    rows = [_seed_row(result, found) for result in results for found in result.seeds]
    note = "\n\n* shared the machine with other runs, so its time says nothing." if _any_shared(results) else ""
    return table([*header, "steps/s"], rows) + note


def summary_text(results: Sequence[StudyResult]) -> str:
    """One line per study; times are medians over the seeds that ran alone."""
    header = ["study", "seeds", "mean return", "IQM", "95 %", "worst seed", "bar", "met", "steps", "minutes"]
    header += ["steps/s"]
    return table(header, [_summary_row(result) for result in results])


def task_text(results: Sequence[StudyResult]) -> str:
    """What was measured here on one task, and beside it what others have published."""
    header = ["algorithm", "seeds", "steps", "IQM", "worst seed", "environment", "source"]
    rows = []
    for result in results:
        returns = [found.mean_return for found in result.seeds]
        interval = stratified_interval([returns])
        score = f"{returns[0] if interval is None else interval.iqm:.1f}"
        steps = f"{max(found.steps for found in result.seeds):,}"
        measured = [name_of(result), str(len(returns)), steps, score, f"{min(returns):.1f}"]
        rows.append([*measured, result.study.env_id, "measured here"])
    rows += [
        [entry.algo.upper(), str(entry.runs), f"{entry.steps:,}", f"{entry.score:.1f}", "", entry.version, entry.source]
        for entry in published_for(results[0].study.env_id)
    ]
    return table(header, rows)


def with_results(text: str, algo: str, results: Sequence[StudyResult]) -> str:
    """An algorithm's page of the documentation with today's results in its table."""
    before, marker, rest = text.partition(f"<!-- results {algo}: begin -->\n")
    _, blank, after = rest.partition("\n\n")
    shown = [result for result in results if result.seeds]
    seeds = sorted({found.seed for result in shown for found in result.seeds})
    header = ["environment", *(f"seed {seed}" for seed in seeds), "needed", "steps"]
    rows = []
    for result in shown:
        returns = {found.seed: f"{found.mean_return:.1f}" for found in result.seeds}
        steps = max(found.steps for found in result.seeds)
        cells = [returns.get(seed, "not run") for seed in seeds]
        rows.append([result.study.env_id, *cells, f"{result.study.bar:g}", f"{steps:,}"])
    return before + marker + table(header, rows) + blank + after


def missing_text(studies: Sequence[Study], results: Sequence[StudyResult]) -> str:
    """The studies and seeds that have not been run, with the command for each; empty if there is none."""
    lines = []
    for study in studies:
        done = {found.seed for result in results if result.study == study for found in result.seeds}
        seeds = [str(seed) for seed in study.usual_seeds if seed not in done]
        if seeds:
            lines.append(f"python benchmarks/learning/run.py --study {study.name} --seeds {' '.join(seeds)}")
    return "\n".join(["```sh", *lines, "```"]) if lines else ""


def page_text(studies: Sequence[Study], results: Sequence[StudyResult]) -> str:
    """The page that lies beside the figures: everything to read and to look at."""
    parts = [
        "# What the algorithms learn",
        "Written by `python benchmarks/learning/run.py`; what it measures is explained in [the folder above]"
        "(../README.md).",
        f"![Learning curves of all studies]({OVERVIEW})",
        summary_text(results),
        "IQM is the interquartile mean of the seeds' returns: without the lowest and the highest quarter of them. Its "
        "interval is a stratified bootstrap over seeds, as in rliable. A bar is for the worst seed, or for the IQM "
        "where it says so. Steps/s and minutes are of runs that had the machine to themselves.",
    ]
    missing = missing_text(studies, results)
    if missing:
        parts += ["## Not run yet", "Nothing is known of these; each command runs one study.", missing]
    parts += ["## Task by task", "What others have published was not run here: read each with its version and steps."]
    for env_id in dict.fromkeys(result.study.env_id for result in results):
        of_task = [result for result in results if result.study.env_id == env_id]
        parts += [f"### {env_id}", task_text(of_task), f"![Returns on {env_id}]({task_picture(env_id)})"]
    parts += [
        "## Seed by seed",
        "Each seed's mean return is over 100 episodes of evaluation without exploring, with half its 95 % interval.",
        seeds_text(results),
        "## Study by study",
    ]
    for result in results:
        name = result.study.name
        parts += [
            f"### {name}",
            f"[figures]({name}.json) · [curves]({name}.csv)",
            f"![Learning curves of {name}]({curves_of(result)})",
        ]
    return "\n\n".join(parts) + "\n"


def _seed_row(result: StudyResult, found: SeedResult) -> list[str]:
    shared = "*" if found.side_by_side > 1 else ""
    return [
        result.study.name,
        str(found.seed),
        f"{found.mean_return:.1f}",
        f"± {(found.interval_high - found.interval_low) / 2:.1f}",
        f"{found.min_return:.1f}",
        f"{found.max_return:.1f}",
        f"{found.mean_length:.0f}",
        f"{result.study.bar:g}",
        "yes" if found.passes else "NO",
        f"{found.steps:,}",
        f"{found.training_seconds:.0f}{shared}",
        f"{found.steps_per_second:,.0f}{shared}",
    ]


def _summary_row(result: StudyResult) -> list[str]:
    returns = [found.mean_return for found in result.seeds]
    interval = stratified_interval([returns])
    alone = result.alone
    minutes = statistics.median(found.training_seconds for found in alone) / 60 if alone else None
    speed = statistics.median(found.steps_per_second for found in alone) if alone else None
    return [
        result.study.name,
        str(len(returns)),
        f"{statistics.mean(returns):.1f}",
        f"{returns[0] if interval is None else interval.iqm:.1f}",
        "one seed" if interval is None else f"{interval.low:.1f} to {interval.high:.1f}",
        f"{min(returns):.1f}",
        f"{result.study.bar:g}{' (IQM)' if result.study.judged_by == 'iqm' else ''}",
        "yes" if result.passes else "NO",
        f"{max(found.steps for found in result.seeds):,}",
        "not timed" if minutes is None else f"{minutes:.1f}",
        "not timed" if speed is None else f"{speed:,.0f}",
    ]


def _any_shared(results: Sequence[StudyResult]) -> bool:
    return any(found.side_by_side > 1 for result in results for found in result.seeds)
