"""An older envfleet beside the one at hand: built from its sources, on the same packages."""

from __future__ import annotations

import subprocess

from .installation import ROOT, Progress, make_venv, telling_line

REVISIONS_DIRECTORY = ROOT / "build" / "compare"


class RevisionError(RuntimeError):
    """There is no such revision, or it cannot be built; says why."""


def commit_of(revision: str) -> str:
    """The commit that a name stands for."""
    return _run("git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()


def revision_python(commit: str, progress: Progress) -> str:
    """An interpreter with the envfleet of that commit and otherwise our packages; made first if there is none."""
    directory = REVISIONS_DIRECTORY / commit[:12]
    python = directory / "venv" / "bin" / "python"
    done = directory / "built"
    if done.exists():
        return str(python)
    progress(f"building {commit[:12]} in {directory}")
    sources = directory / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    archive = directory / "sources.tar"
    _run("git", "-C", str(ROOT), "archive", "--output", str(archive), commit)
    _run("tar", "-xf", str(archive), "-C", str(sources))
    make_venv(directory / "venv")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _run(*pip, "--no-compile", "--no-deps", "--no-build-isolation", str(sources))
    done.touch()
    return str(python)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RevisionError(f"{' '.join(command[:6])} ...: {telling_line(done.stderr)}")
    return done.stdout
