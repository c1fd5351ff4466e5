"""The parity table of docs/native.md, made of the cases the oracle tests compare. `python tests/oracle/parity.py`"""

from __future__ import annotations

import test_box2d
import test_classic_control
import test_mujoco
import test_toy_text


def parity_table() -> str:
    """One line an id: with which arguments it was compared, over how many steps, and how equal it is."""
    lines = ["| id | compared with arguments | seeds x steps, each mode | equality |", "|---|---|---|---|"]
    cases = [*test_classic_control.CASES, *test_toy_text.CASES, *test_box2d.CASES]
    for env_id in dict.fromkeys(case.env_id for case in cases):
        own = [case for case in cases if case.env_id == env_id]
        names = sorted({name for case in own for name in case.kwargs})
        arguments = ", ".join(f"`{name}`" for name in names) or "defaults only"
        size = f"{sum(case.seeds for case in own)} x {min(case.steps for case in own):,}"
        lines.append(f"| `{env_id}` | {arguments} | {size} | every bit |")
    for case in test_mujoco.SAMPLED:  # a test sees to it that none of their arguments is left out
        lines.append(f"| `{case.env_id}` | all | {case.seeds} x {case.steps:,} | every bit |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(parity_table())
