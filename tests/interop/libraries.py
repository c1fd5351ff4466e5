"""The libraries that `make interop` runs envfleet with, and what is installed for each."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from harness.installation import InstallationError, Peer, interop_python, peers

__all__ = ["INTEROP", "LIBRARIES", "InstallationError", "Peer", "interop_python", "named"]

INTEROP = "ENVFLEET_INTEROP"
"""Set where the tests of a library run: elsewhere they are not collected."""

LIBRARIES = (
    peers()["tianshou"],
    peers()["torchrl"],
    Peer("minari_collector", "minari[hdf5,create]==0.5.4"),  # Minari's own recorder needs JAX
)
"""The name says the virtual environment, build/interop/NAME, and the tests: test_NAME.py and test_NAME_*.py.

What a library needs in another version than ours, it gets for itself: its environment lies on top of .venv.
"""


def named(name: str) -> Peer:
    """The library of this name."""
    by_name = {library.name: library for library in LIBRARIES}
    if name not in by_name:
        raise KeyError(f"there is no library {name!r}; there are {', '.join(by_name)}")
    return by_name[name]
