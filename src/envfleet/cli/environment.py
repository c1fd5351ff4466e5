"""Environments on the command line: where the modules that they name are found."""

from __future__ import annotations

import sys
from pathlib import Path

ENV_HELP = "the environment: a registered id, MODULE:ID, or FILE.py:CLASS."


def look_here(names_a_module: bool) -> None:
    """Has modules imported from the present folder too, as `python -m envfleet` does.

    Only for a command whose environment names a module, and after this was allowed: a folder that somebody sent must
    not be able to replace what envfleet itself imports.
    """
    here = str(Path.cwd())
    if names_a_module and here not in sys.path:
        sys.path.insert(0, here)
