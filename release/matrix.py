"""Tests what pyproject.toml claims: the installed wheel with the oldest and the newest of what it asks for.

python release/matrix.py                 all cells: what `make matrix` does
python release/matrix.py oldest newest   one or some

Each cell has a virtual environment below build/matrix and runs release/conformance there. The wheels are those that
`make wheels` leaves in dist/.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from building import DIST, ROOT, CommandError, run, the_only, virtual_environment
from pythons import pythons

MATRIX = ROOT / "build" / "matrix"
# What Gymnasium's own Box2D environments need, in the version of its newest release: older ones ask for a compiler.
BESIDE = ("box2d==2.3.10", "pygame-ce", "pytest>=8", "hypothesis")


@dataclass(frozen=True)
class Cell:
    """One combination of versions.

    Attributes:
        name: What to call it on the command line.
        tag: The Python, as wheels say it.
        versions: What pip installs beside the wheel.
        extras: Of envfleet.
    """

    name: str
    tag: str
    versions: tuple[str, ...]
    extras: str = ""


CELLS = (
    Cell("oldest", "cp310", ("gymnasium==1.1.0", "numpy==1.24.0", "cloudpickle==3.0.0")),
    Cell("gymnasium-1.1", "cp311", ("gymnasium==1.1.1", "numpy==1.24.4")),
    Cell("gymnasium-1.2", "cp311", ("gymnasium==1.2.3", "numpy==1.26.4")),
    Cell("gymnasium-1.3", "cp311", ("gymnasium==1.3.0", "numpy==2.0.2")),
    Cell("gymnasium-1.4", "cp311", ("gymnasium==1.4.0", "numpy==2.4.6")),
    Cell("training", "cp311", ("gymnasium==1.4.0", "torch==2.13.0"), "[train]"),
    Cell("python-3.10", "cp310", ("gymnasium==1.4.0", "numpy==2.2.6")),
    Cell("python-3.12", "cp312", ("gymnasium==1.4.0", "numpy==1.26.4")),
    Cell("newest", "cp313", ("gymnasium==1.4.0", "numpy==2.5.4", "cloudpickle==3.1.2")),
)


def main() -> None:
    """Run, say how each cell fared, and fail if any failed."""
    known = {cell.name: cell for cell in CELLS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CELL", help=f"of {', '.join(known)}; default all")
    names = parser.parse_args().names or list(known)
    for name in names:
        if name not in known:
            parser.error(f"there is no cell {name!r}; there are {', '.join(known)}")
    outcomes: dict[str, str] = {}
    for name in names:
        outcomes[name] = outcome(known[name])
        print(outcomes[name], flush=True)
    for name, told in outcomes.items():
        cell = known[name]
        print(f"{name:14} {cell.tag}  {' '.join(cell.versions):58} {told}")
    sys.exit(any(told.startswith("FAILED") for told in outcomes.values()))


def outcome(cell: Cell) -> str:
    """What pytest says of a cell, in its last line."""
    print(f"== {cell.name}", flush=True)
    try:
        python = next((each for each in pythons() if each.tag == cell.tag), None)
        if python is None:
            return "FAILED: this Python is not on this machine"
        wheel = the_only(DIST, f"envfleet-*-{cell.tag}-*x86_64.whl")
        interpreter = installed(cell, python.path, wheel)
        said = run(conformance(interpreter))
    except (CommandError, FileNotFoundError) as error:
        print(error)
        return f"FAILED: {str(error).splitlines()[-1]}"
    return said.strip().splitlines()[-1].strip("= ")


def installed(cell: Cell, python: Path, wheel: Path) -> Path:
    """The interpreter of a virtual environment with the wheel as it is now, and the cell's versions."""
    requirement = f"{wheel}{cell.extras}"
    made = f"--no-warn-conflicts --config-settings=built={wheel.stat().st_mtime_ns}".split()
    return virtual_environment(MATRIX / cell.name, python, [requirement, *cell.versions, *BESIDE], *made)


def conformance(interpreter: Path) -> list[str | Path]:
    """The command that runs the short conformance suite."""
    folder = ROOT / "release" / "conformance"
    return [interpreter, "-m", "pytest", "-q", "-c", folder / "pytest.ini", "--rootdir", folder, folder]


if __name__ == "__main__":
    main()
