"""What a benchmark says before it measures, and how it keeps and shows what it has measured."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .machine import Machine
from .pages import with_section
from .report import Load, machine_text


@dataclass(frozen=True)
class Conditions:
    """Where and beside what a benchmark runs.

    Attributes:
        load: of the machine before the benchmark began.
    """

    machine: Machine
    load: Load

    @classmethod
    def announced(cls, machine: Machine) -> Conditions:
        """Those of now, which are printed."""
        now = cls(machine, os.getloadavg())
        print(machine_text(machine, now.load), flush=True)
        return now

    @property
    def cores(self) -> str:
        """How many cores of which processor, for a sentence."""
        return f"{self.machine.usable_cores} cores ({self.machine.processor})"

    def as_json(self) -> dict[str, Any]:
        """The same for a file."""
        return asdict(self)


def publish(result: Mapping[str, Any], kept: Path, sections: Mapping[str, str], page: Path) -> None:
    """Keep a result as JSON, and put texts into the sections of a page."""
    kept.write_text(json.dumps(result, indent=2) + "\n")
    for name, text in sections.items():
        page.write_text(with_section(page.read_text(), name, text))
