"""`write_report`: runs as one page to send to somebody: a file that opens from disk and asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from envfleet.train.atomic_files import replacing
from envfleet.train.judging.curves import Group, group_runs, in_common
from envfleet.train.judging.inline import film_source
from envfleet.train.running.reporting import duration, score
from envfleet.train.sharing.chart_data import curve_charts, scenario_charts
from envfleet.train.sharing.facts import Facts, interval, read_facts
from envfleet.train.sharing.pages import asset

REPORT_FILE = "report.html"
_SCRIPTS = ("uPlot.iife.min.js", "charts.js", "report.js")
_STYLES = ("uPlot.min.css", "look.css")


def write_report(
    run_dirs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], path: str | os.PathLike[str] | None = None
) -> Path:
    """Write one HTML file about one run or several: results, curves, scenarios, films and settings.

    Everything is in the file: it opens from disk, loads nothing, and can be sent. Runs that differ only in their seed
    are one line with a band from the lowest to the highest, and have a mean with its 95 % interval over the seeds.

    Args:
        run_dirs: folders of runs, also of those under way.
        path: where to; by default report.html, in the folder of the only run, in the working directory for several.

    Returns:
        The path written to.
    """
    given = [run_dirs] if isinstance(run_dirs, (str, os.PathLike)) else run_dirs
    folders = list({Path(folder).resolve(): Path(folder) for folder in given}.values())
    if not folders:
        raise ValueError("write_report needs at least one run's folder, got none.")
    target = Path(path or (folders[0] / REPORT_FILE if len(folders) == 1 else REPORT_FILE))
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report's path must end in .html, got {os.fspath(target)!r}.")
    page = _page([read_facts(folder) for folder in folders])
    with replacing(target) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")
    return target


def _page(facts: Sequence[Facts]) -> str:
    groups = group_runs([one.run for one in facts])
    members = [[one for one in facts if any(one.run is run for run in group.runs)] for group in groups]
    names = [group.label if len(group.runs) == 1 else f"{group.label} ({group.count})" for group in groups]
    env = in_common([one.run for one in facts], "env_id")
    title = facts[0].title if len({one.title for one in facts}) == 1 else f"{len(facts)} runs"
    title = f"{title} on {env}" if env and " on " not in title else title
    swept = [(number, one) for number, part in enumerate(members) for one in part[:1] if one.scenarios]
    charts = {"curves": curve_charts(groups), "scenarios": scenario_charts(swept)}
    sections = [
        _section("Results", _results(groups, members)),
        _section("Curves", f'<div class="charts" id="curves"></div>{_curves_note(groups)}'),
        _section("Scenarios", _scenarios(facts)) if swept else "",
        _section("Films", _films(facts)) if any(one.film or one.still for one in facts) else "",
        _section("Settings", _settings(groups)),
    ]
    numbers = {"names": names, "charts": {place: found for place, found in charts.items() if found}}
    return _document(title, _lead(facts), "".join(sections), numbers)


def _document(title: str, lead: str, body: str, numbers: Mapping[str, Any]) -> str:
    script, styles = "\n".join(map(asset, _SCRIPTS)), "\n".join(map(asset, _STYLES))
    # Only the scripts of this file run, whatever the names and texts of a run may say; nothing is loaded from anywhere.
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{checksum}'; style-src 'unsafe-inline'; img-src data:; "
        "media-src data:; base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")
    made = f"Made by envfleet {version('envfleet')} on {datetime.now():%Y-%m-%d %H:%M}."
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>\n{styles}</style>\n</head>\n<body>\n"
        f"<header><h1>{_text(title)}</h1>{lead}</header>\n<main>\n{body}"
        "<noscript><p>The charts need JavaScript; the tables do not.</p></noscript>\n</main>\n"
        f"<footer><p>{_text(made)} Charts: uPlot, copyright (c) 2022 Leon Sorokin, MIT licence.</p></footer>\n"
        f'<script type="application/json" id="numbers">{data}</script>\n<script>{script}</script>\n</body>\n</html>\n'
    )


def _lead(facts: Sequence[Facts]) -> str:
    """What came out, in a sentence."""
    parts = []
    if len(facts) == 1:
        (one,) = facts
        total = one.setting("total_steps")
        of = f" of {total:,}" if isinstance(total, int) and total > one.steps else ""
        spent = "" if one.seconds is None else f" in {duration(one.seconds)}"
        parts.append(f"{one.steps:,}{of} environment steps{spent}, seed {one.run.seed or 'unknown'}.")
        if (found := one.evaluation) is not None:
            parts.append(f"Mean return {_plus_minus(found.mean, found.half)} over {found.episodes} episodes.")
    else:
        parts.append(f"{len(facts)} runs, {sum(one.steps for one in facts):,} environment steps altogether.")
    return f'<p class="soft">{_text(" ".join(parts))}</p>'


def _section(title: str, content: str) -> str:
    name = f"{title.lower()}-title"
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{content}</section>\n'


_COLUMNS = (
    "evaluation",
    "worst",
    "best",
    "episodes",
    "best in training",
    "return at the end",
    "steps",
    "time",
    "steps/s",
)


def _results(groups: Sequence[Group], members: Sequence[Sequence[Facts]]) -> str:
    rows: list[tuple[str, str, dict[str, str]]] = []
    for group, part in zip(groups, members, strict=True):
        if len(part) == 1:
            rows.append((group.label, "", _run_cells(part[0])))
            continue
        rows.append((f"{group.label}, mean of {group.count}", "group", _group_cells(part)))
        rows += [(_seed_name(one), "seed", _run_cells(one)) for one in part]
    # What no run has is left out: on a phone every column counts.
    columns = [name for name in _COLUMNS if any(cells.get(name) for _, _, cells in rows)]
    lines = [_row(label, [cells.get(name, "") for name in columns], kind) for label, kind, cells in rows]
    notes = []
    if "evaluation" in columns:
        notes.append("Evaluation: mean return without exploration, after the training, ± half of its 95 % interval.")
    if any(len(part) > 1 for part in members):
        notes.append("Means of several seeds have their own interval, over the seeds (Student's t).")
    if "return at the end" in columns:
        notes.append("Return at the end: of the episodes of the last tenth of the training, with exploration.")
    return _table("Results", ("run", *columns), lines) + f'<p class="note">{_text(" ".join(notes))}</p>'


def _seed_name(one: Facts) -> str:
    return one.folder.resolve().name if one.run.seed is None else f"seed {one.run.seed}"


def _run_cells(one: Facts) -> dict[str, str]:
    found, best = one.evaluation, one.best
    cells = {
        "return at the end": "" if one.end_return is None else score(one.end_return),
        "steps": f"{one.steps:,}",
        "time": "" if one.seconds is None else duration(one.seconds),
        "steps/s": "" if one.steps_per_second is None else f"{one.steps_per_second:,.0f}",
        "best in training": "" if best is None else score(best.mean),
    }
    if found is not None:
        ends = {name: score(end) for name, end in (("worst", found.worst), ("best", found.best)) if end is not None}
        cells |= {"evaluation": _plus_minus(found.mean, found.half), "episodes": str(found.episodes), **ends}
    return cells


def _group_cells(part: Sequence[Facts]) -> dict[str, str]:
    means = {
        "evaluation": [one.evaluation.mean for one in part if one.evaluation is not None],
        "best in training": [one.best.mean for one in part if one.best is not None],
        "return at the end": [one.end_return for one in part if one.end_return is not None],
    }
    return {name: _plus_minus(*interval(values)) for name, values in means.items() if values}


def _plus_minus(mean: float, half: float | None) -> str:
    """Both with the decimals that the mean needs."""
    text = score(mean)
    decimals = len(text.partition(".")[2])
    return text if half is None else f"{text} ± {half:.{decimals}f}"


def _curves_note(groups: Sequence[Group]) -> str:
    if len(groups) == 1 and len(groups[0].runs) == 1:
        text = "Faint: values as logged. Bold: their moving average over a fiftieth of the run."
    else:
        text = "Lines: moving averages over a fiftieth of the longest run."
        if any(len(group.runs) > 1 for group in groups):
            text += " Bands: from the lowest to the highest seed, around their mean."
    return f'<p class="note">{_text(text)} Over environment steps.</p>'


def _scenarios(facts: Sequence[Facts]) -> str:
    parts = ['<div class="charts" id="scenarios"></div>']
    for one in facts:
        if not one.scenarios:
            continue
        rows = []
        for point in one.scenarios:
            label, found = f"{point.parameter} = {_short(point.value)}", point.score
            if found is None:
                why = f"refused: {' '.join((point.error or '').split())}"
                rows.append(f'<tr><th scope="row">{_text(label)}</th><td colspan="4">{_text(why)}</td></tr>')
                continue
            ends = ["" if end is None else score(end) for end in (found.worst, found.best)]
            rows.append(_row(label, [_plus_minus(found.mean, found.half), *ends, str(found.episodes)]))
        parts.append(f"<h3>{_text(_folder_name(one))}</h3>")
        parts.append(_table("Scenarios", ("scenario", "mean return ± 95 %", "worst", "best", "episodes"), rows))
    return "".join(parts) + '<p class="note">Bands: the 95 % interval of the mean.</p>'


def _films(facts: Sequence[Facts]) -> str:
    figures = [figure for one in facts for figure in _film(one)]
    return f'<div class="films">{"".join(figures)}</div>'


def _film(one: Facts) -> Iterator[str]:
    name = _text(_folder_name(one))
    source = None if one.film is None else film_source(one.film)
    still = None if one.still is None else film_source(one.still)
    poster = "" if still is None else f' poster="{still}"'
    if source is not None and one.film is not None and one.film.suffix == ".mp4":
        label = f"Film of the agent of {one.folder.resolve().name}"
        # Without a track of sound there is nothing to caption.
        yield (
            f'<figure><video controls loop muted playsinline preload="metadata" aria-label="{_text(label)}"'
            f'{poster} src="{source}"></video><figcaption>{name}</figcaption></figure>'
        )
        return
    if source is not None:
        yield f'<figure><img alt="Film of the agent" src="{source}"><figcaption>{name}</figcaption></figure>'
    if still is not None:
        missing = " (the film is too large for a page)" if one.film is not None and source is None else ""
        caption = f"{name}: the best episode in one picture{missing}"
        yield f'<figure><img alt="The best episode" src="{still}"><figcaption>{caption}</figcaption></figure>'


def _settings(groups: Sequence[Group]) -> str:
    known = [group.runs[0].settings for group in groups]
    names = sorted({name for settings in known for name in settings})
    if not names:
        return "<p>These folders have no config.json.</p>"
    headline = ("setting", *(group.label for group in groups))
    differing = [name for name in names if len({settings.get(name) for settings in known}) > 1]
    every = _table("All settings", headline, [_setting_row(name, known) for name in names], words=True)
    every = f"<details><summary>All {len(names)} settings</summary>{every}</details>"
    if len(groups) == 1:
        return every
    if not differing:
        return f"<p>No settings differ.</p>{every}"
    table = _table("Settings that differ", headline, [_setting_row(name, known) for name in differing], words=True)
    return f'<p class="soft">{len(differing)} of {len(names)} settings differ:</p>{table}{every}'


def _setting_row(name: str, known: Sequence[Mapping[str, str]]) -> str:
    return _row(name, [settings.get(name, "not set") for settings in known])


def _table(label: str, headline: Sequence[str], rows: Sequence[str], *, words: bool = False) -> str:
    head = "".join(f'<th scope="col">{_text(title)}</th>' for title in headline)
    kind = ' class="words"' if words else ""
    # A region that scrolls must be reachable by keyboard.
    return (
        f'<div class="scroll" role="region" aria-label="{_text(label)}" tabindex="0"><table{kind}>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(label: str, cells: Sequence[str], kind: str = "") -> str:
    inner = "".join(f"<td>{_text(cell)}</td>" for cell in cells)
    shown = f' class="{kind}"' if kind else ""
    return f'<tr{shown}><th scope="row">{_text(label)}</th>{inner}</tr>'


def _folder_name(one: Facts) -> str:
    return f"{one.title}, {one.folder.resolve().name}"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _text(text: str) -> str:
    return html.escape(text, quote=True)
