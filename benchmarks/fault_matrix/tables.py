"""The matrix as Markdown, made from its JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .cell import STEPS_AFTER
from .contestants import ALL, CALLER_KILLED, FAULTS, NO_FAULT
from .failing_env import FAIL_AT, FAILING, NUM_ENVS
from .measuring import GONE_SECONDS, SIGNAL_SECONDS, STEP_SECONDS
from .verdicts import BLOCKED, CALLER_ENDED, CRASHED, FAILED, NOT_APPLICABLE, RAISED, TOLD, Facts, left

Cells = Mapping[str, Mapping[str, Facts]]
HEADINGS = ("noticed", "names the environment", "rows lost", "neighbours", "after the error", "left behind")

HEAD = """# The kill matrix

What becomes of a vector environment when one of its environments fails: envfleet and its peers, every cell measured.
Made by `python benchmarks/faults.py`, from [faults.json](faults.json), which also has the words of every error.

Each cell says when the caller knew, and whether the error names the environment. *Silent*: it never knew. *Hangs*: the
call had not returned after the seconds given. What is **bold** is silently wrong, hangs, or leaves something behind.
*n/a*: the fault or the check does not exist there; below it says why.

"""

METHOD = f"""
## How it was measured

- Each cell is a process with a session of its own: {NUM_ENVS} environments, seeded; number {FAILING} fails at its step
  {FAIL_AT}, once; what still steps after that makes {STEPS_AFTER} more. Rows do not depend on actions.
- *Noticed*: from the moment of the fault, written down by the environment, to an exception (*raised*), or to an
  answer that tells of it (*told*: `infos["restarted"]` in envfleet; in RLlib its metrics, the health of its env
  runners, or the id of a new episode). What is only printed does not count.
- *Names the environment*: the message has the environment's number, or that of a worker with one environment. *In the
  log only*: that was printed, and the exception does not have it.
- *Rows lost*: of the {NUM_ENVS} rows of that step, those that never reached the caller.
- *Neighbours*: the rows of the {NUM_ENVS - 1} others, from that step on, beside those of an undisturbed run, bit by
  bit. *Cut*: the fleet could not step on after the error, so their episodes are lost.
- *After the error*: `step()` again, and if that fails `reset()`. If that hangs, or `close()` after it, another run
  calls `close()` right after the error, and its end counts.
- *Left behind*: processes that carry the cell's mark in their environment, their files in /dev/shm, and shared
  memory that they hold, {GONE_SECONDS:.0f} s after the caller's end. The caller calls `close()` and ends; where
  something hangs it gets Ctrl-C, SIGTERM and SIGKILL, {SIGNAL_SECONDS:.0f} s apart, as from an impatient user.
- Libraries have their default settings, but that TorchRL's processes come from a fork server, which starts them sooner.
  Where one has a limit for a step it is {STEP_SECONDS:.0f} s: envfleet's `step_timeout`, Gymnasium's
  `step_wait(timeout=)`, TorchRL's BATCHED_PIPE_TIMEOUT, RLlib's `sample_timeout_s`. Where one has a check for NaN it is
  on in the cells that say so: envfleet's `check_nan`, SB3's VecCheckNan, TorchRL's FiniteTensorDictCheck.
- envfleet has two workers, RLlib two env runners, of three environments each; RLlib's fault tolerance is on
  (`restart_failed_env_runners`, `restart_failed_sub_environments`). The others have one process per environment.
- *Observation too short*: three numbers instead of four. *Of one number*: what NumPy broadcasts without a word.
  *Fork*: the environment calls `os.fork()`, and the child returns from `step()` too.
- envfleet native runs the same environment in C, which is compiled with `cc`.

```sh
python benchmarks/faults.py                          # everything; peers are installed below build/peers first
python benchmarks/faults.py --only envfleet          # our rows again, the others stay
python benchmarks/faults.py --only envfleet --quick  # four faults, a first look
```
"""


def page(cells: Cells, machine: Mapping[str, Any]) -> str:
    """The whole page."""
    known = [each for each in ALL if each.name in cells]
    faults = [fault for fault in FAULTS if any(fault in cells[each.name] for each in known)]
    labels = {each.name: each.label for each in known}
    parts = [HEAD, _table(("", *labels.values()), (_summary_row(fault, labels, cells) for fault in faults))]
    for fault in faults:
        rows = (_detail_row(labels[name], cells[name].get(fault)) for name in labels)
        headings = ("", "all gone", "left behind") if fault in CALLER_KILLED else ("", *HEADINGS)
        title = FAULTS[fault]
        parts.append(f"\n## {title[0].upper()}{title[1:]}\n\n{_table(headings, rows)}")
    return "".join([*parts, METHOD, _versions(labels, cells), _machine(machine)])


def verdict(facts: Facts) -> str:
    """A cell in a few words."""
    outcome: str = facts["outcome"]
    if outcome in (NOT_APPLICABLE, FAILED):
        return outcome
    if outcome == CALLER_ENDED:
        return _left(facts) if left(facts) else f"gone after {facts['left']['seconds']:.1f} s"
    words = [_notice(facts)]
    if outcome in (RAISED, TOLD) and facts["named"]:
        words.append("named")
    counted = [(fate, facts["neighbours"].get(fate)) for fate in ("wrong", "missing")]
    words += [f"**neighbours {fate}: {count}**" for fate, count in counted if count]
    if left(facts):
        words.append(_left(facts))
    return ", ".join(words)


def _summary_row(fault: str, labels: Mapping[str, str], cells: Cells) -> list[str]:
    return [FAULTS[fault], *(verdict(cells[name][fault]) if fault in cells[name] else "" for name in labels)]


def _detail_row(label: str, facts: Facts | None) -> list[str]:
    if facts is None:
        return [label, "not run"]
    if facts["outcome"] in (NOT_APPLICABLE, FAILED):
        return [label, f"{facts['outcome']}: {facts['reason']}"]
    if facts["outcome"] == CALLER_ENDED:
        return [
            label,
            "**no**" if facts["left"]["processes"] else f"after {facts['left']['seconds']:.2f} s",
            _left(facts),
        ]
    names = "yes" if facts["named"] else "in the log only" if facts["named_in_log"] else "no"
    noticed = facts["outcome"] in (RAISED, TOLD)
    return [
        label,
        _notice(facts) + (f", `{facts['error']}`" if facts.get("error") else ""),
        names if noticed else "",
        f"{facts['lost']} of {NUM_ENVS}",
        _neighbours(facts),
        _after(facts),
        _left(facts),
    ]


def _notice(facts: Facts) -> str:
    outcome = facts["outcome"]
    if outcome in (RAISED, TOLD):
        return f"{outcome} after {facts['seconds']:.2f} s"
    if outcome == BLOCKED:
        return f"**hangs** ({facts['notice_limit']:.0f} s)"
    if outcome == CRASHED:
        return f"**the caller ended, exit code {facts['exit_code']}**"
    return (
        "**silent**" if facts["own_fate"] != "equal" or facts["neighbours"].get("equal") != NUM_ENVS - 1 else "no harm"
    )


def _neighbours(facts: Facts) -> str:
    fates = facts["neighbours"]
    if fates.get("equal") == NUM_ENVS - 1:
        own = facts["own_fate"]
        passed_on = facts["outcome"] not in (RAISED, TOLD) and own != "equal"
        return "equal" + (", **its own rows wrong**" if passed_on else "")
    marked = {
        fate: f"**{count} {fate}**" if fate in ("wrong", "missing") else f"{count} {fate}"
        for fate, count in fates.items()
    }
    return ", ".join(marked[fate] for fate in sorted(marked))


def _after(facts: Facts) -> str:
    going_on = facts["going_on"]
    said = [f"{way}() {_came_of(going_on[way])}" for way in ("step", "reset") if way in going_on]
    if facts["close"] == "blocked":
        said.append(f"**close() hangs** ({facts['close_limit']:.0f} s)")
    elif facts["close"] not in ("ok", "not reached"):
        said.append(f"close() raises `{facts['close']}`")
    if facts["ended_by"] not in ("itself", "Ctrl-C"):
        said.append(f"ended by {facts['ended_by']} only")
    return ", ".join(said)


def _came_of(word: str) -> str:
    return {"ok": "goes on", "blocked": "**hangs**"}.get(word, f"raises `{word}`")


def _left(facts: Facts) -> str:
    counts = facts["left"]
    words = {"processes": "process", "shared_files": "file in /dev/shm", "held_shared_memory": "shared memory"}
    said = [_counted(counts[name], word) for name, word in words.items() if counts[name]]
    return f"**{', '.join(said)} left**" if said else "nothing"


def _counted(count: int, word: str) -> str:
    plural = {
        "process": "processes",
        "file in /dev/shm": "files in /dev/shm",
        "shared memory": "pieces of shared memory",
    }
    return f"{count} {word if count == 1 else plural[word]}"


def _table(headings: Iterable[str], rows: Iterable[list[str]]) -> str:
    head = list(headings)
    lines = [head, ["---"] * len(head), *([*row, *[""] * (len(head) - len(row))] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _versions(labels: Mapping[str, str], cells: Cells) -> str:
    lines = []
    for name, label in labels.items():
        found = cells[name].get(NO_FAULT, {}).get("versions", {})
        lines.append([label, ", ".join(f"{package} {number}" for package, number in sorted(found.items()))])
    return f"\n## Versions\n\n{_table(('', 'versions'), lines)}"


def _machine(machine: Mapping[str, Any]) -> str:
    return f"\n{machine['platform']}, {machine['cores']} cores, {machine['processor']}.\n"
