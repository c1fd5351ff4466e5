"""What a cell's diary amounts to: who noticed what and when, and how the neighbours fared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .failing_env import FAIL_AT, FAILING, NUM_ENVS

RAISED, TOLD, SILENT = "raised", "told", "silent"
BLOCKED, CRASHED = "blocked", "caller crashed"
CALLER_ENDED, NOT_APPLICABLE, FAILED = "caller killed", "n/a", "failed to run"
MOST_CHARACTERS = 400

Event = dict[str, Any]
Facts = dict[str, Any]
Rows = dict[int, dict[int, str]]

# An environment, or its worker or process, and its number: "environment 4", "Worker-4", "env_idx=4".
_NAMED = re.compile(
    rf"(env|environments?|workers?|process|index|idx|remote)(<\w+>)?[\s#:=_()\[-]{{0,3}}{FAILING}\b(?!\.\d)",
    re.IGNORECASE,
)


def noticed(diary: Sequence[Event], failed_at: float, blocked: str | None, log: str) -> Facts:
    """What the caller learnt, in which words and how soon; what came after."""
    event = first_notice(diary)
    closed_by = next((each for each in diary if each["event"] in ("closed", "close raised")), None)
    facts: Facts = {
        "outcome": _outcome(diary, event, blocked),
        "named": bool(event and _NAMED.search(event["words"])),
        "named_in_log": bool(_NAMED.search(log)),
        "close": "blocked" if blocked == "closing" else closed_by.get("type", "ok") if closed_by else "not reached",
        "going_on": _going_on(diary),
        "answers": _rows(diary, "answer"),
        "later_answers": _rows(diary, "answer after step"),
        "restarted": sorted({index for each in diary for index in each.get("restarted", ())}),
    }
    if event:
        facts |= {"seconds": round(max(event["at"] - failed_at, 0.0), 3), "error": event.get("type", "")}
        facts["words"] = _without_paths(event["words"])
        facts["restarted_at_once"] = [] if event["event"] == RAISED else event["restarted"]
    return facts


def first_notice(diary: Sequence[Event]) -> Event | None:
    """The first error, or the first answer that told of a failure."""
    return next((each for each in diary if each["event"] == RAISED or _tells(each)), None)


def compare(facts: Facts, reference: Facts) -> Facts:
    """The facts, with how the environments' rows compare with those of an undisturbed run instead of the rows.

    `lost` counts the rows of the step that failed which the caller never got. Of the neighbours, `equal` went on as in
    the undisturbed run; `restarted` began anew and that was told; `missing` ones gave no rows any more, `wrong` ones
    gave rows of their own, both without a word; those `cut` could not go on since the whole fleet could not.
    """
    wanted, seen, later = reference["answers"], facts["answers"], facts["later_answers"]
    kept = {name: value for name, value in facts.items() if name not in ("answers", "later_answers")}
    failing_step = seen.get(FAIL_AT, {})
    gone = [index for index in range(NUM_ENVS) if index not in failing_step]
    kept["lost"] = len({*gone, *facts.get("restarted_at_once", ())})
    fates = [_fate(index, facts, wanted, seen, later) for index in range(NUM_ENVS)]
    kept["own_fate"] = fates.pop(FAILING)
    kept["neighbours"] = {fate: fates.count(fate) for fate in sorted(set(fates))}
    return kept


def left(facts: Facts) -> bool:
    """Whether anything was left behind."""
    return any(facts["left"][name] for name in ("processes", "shared_files", "held_shared_memory"))


def _fate(index: int, facts: Facts, wanted: Rows, seen: Rows, later: Rows) -> str:
    if facts["outcome"] == RAISED:
        return "cut" if not later else "equal" if _continues(index, later, wanted) else "wrong"
    if facts["outcome"] in (BLOCKED, CRASHED):
        return "cut"
    rows = {number: seen.get(number, {}).get(index) for number in wanted if number >= FAIL_AT}
    if all(rows[number] == wanted[number][index] for number in rows):
        return "equal"
    if index in facts["restarted"]:
        return "restarted"
    return "missing" if None in rows.values() else "wrong"


def _continues(index: int, later: Rows, wanted: Rows) -> bool:
    """Whether the rows after an error are those of the undisturbed run, from the step that failed or the next one."""
    rows = [later[number].get(index) for number in sorted(later)]
    return any(
        all(row == wanted[first + n][index] for n, row in enumerate(rows) if first + n in wanted)
        for first in (FAIL_AT, FAIL_AT + 1)
    )


def _tells(event: Event) -> bool:
    return event["event"] == "answer" and bool(event["words"] or event["restarted"])


def _outcome(diary: Sequence[Event], event: Event | None, blocked: str | None) -> str:
    if event:
        return RAISED if event["event"] == RAISED else TOLD
    if any(each["event"] == "closing" for each in diary):
        return SILENT
    return BLOCKED if blocked else CRASHED


def _going_on(diary: Sequence[Event]) -> dict[str, str]:
    """What came of stepping on after an error, and of a reset: "ok", "blocked", an error; empty if it was not tried."""
    words = {"going on": "blocked", "went on": "ok"}
    return {each["way"]: words.get(each["event"]) or str(each["type"]) for each in diary if "way" in each}


def _rows(diary: Sequence[Event], event: str) -> Rows:
    found = [each for each in diary if each["event"] == event]
    return {each["number"]: {int(index): row for index, row in each["rows"].items()} for each in found}


def _without_paths(words: str) -> str:
    return re.sub(r"(/[\w.+-]+){2,}/", ".../", words).strip()[:MOST_CHARACTERS]
