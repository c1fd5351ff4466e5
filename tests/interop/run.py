"""Runs the tests of envfleet with other libraries, each in a virtual environment of its own.

python tests/interop/run.py                       all of them: what `make interop` does
python tests/interop/run.py tianshou              one or some
python tests/interop/run.py tianshou -- -k seed   what follows -- is said to pytest

The environments are made below build/interop the first time, on top of .venv. They have envfleet as it is in the
working tree.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from libraries import INTEROP, LIBRARIES, PATIENCE, InstallationError, Peer, inherited, interop_python, named

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MOST_SECONDS = 3600.0


def main() -> None:
    """Run, say how each library fared, and fail if any failed."""
    known = [library.name for library in LIBRARIES]
    own, _, for_pytest = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; default all")
    names = parser.parse_args(own).names or known
    for name in names:
        if name not in known:
            parser.error(f"there is no library {name!r}; there are {', '.join(known)}")
    outcomes = {}
    for name in names:
        begun = time.monotonic()
        problem = outcome(named(name), for_pytest)
        outcomes[name] = problem, time.monotonic() - begun
    for name, (problem, seconds) in outcomes.items():
        print(f"{name:16} {named(name).package:28} {seconds:5.0f} s  {problem or 'passed'}")
    sys.exit(any(problem for problem, _ in outcomes.values()))


def _split(arguments: list[str]) -> tuple[list[str], str, list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], "--", arguments[at + 1 :]


def outcome(library: Peer, for_pytest: list[str]) -> str:
    """Installs the library if it is not there and runs its tests; says what went wrong, or nothing."""
    files = sorted(map(str, [*HERE.glob(f"test_{library.name}.py"), *HERE.glob(f"test_{library.name}_*.py")]))
    if not files:
        return f"FAILED: there is no test_{library.name}.py"
    print(f"== {library.name}", flush=True)
    try:
        python = interop_python(library, lambda text: print(text, flush=True))
    except InstallationError as error:
        return f"FAILED: {error}"
    settings = ["-q", "-p", "no:cacheprovider", "-o", f"timeout={PATIENCE}"]
    # What libraries say to each other when they are imported is not ours to mend.
    settings += [f"-Wignore::{kind}" for kind in ("DeprecationWarning", "FutureWarning")]
    command = [python, "-m", "pytest", *settings, *for_pytest, *files]
    try:
        code = subprocess.run(command, cwd=ROOT, env={**inherited(), INTEROP: "1"}, timeout=MOST_SECONDS).returncode
    except subprocess.TimeoutExpired:
        return f"FAILED: not finished within {MOST_SECONDS:.0f} s"
    return f"FAILED: pytest ended with {code}" if code else ""


if __name__ == "__main__":
    main()
