"""Peers in virtual environments of their own: their pins must not decide ours, nor each other's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
PEERS_DIRECTORY = ROOT / "build" / "peers"
INTEROP_DIRECTORY = ROOT / "build" / "interop"
INSTALLED = "installed.json"
MOST_SECONDS = 300.0
LONGEST_REASON = 200

Progress = Callable[[str], None]


class InstallationError(RuntimeError):
    """A peer could not be had here; says why in one line."""


@dataclass(frozen=True)
class Peer:
    """A library and its version; what has to be there before it, further flags of pip, and what it is used with."""

    name: str
    package: str
    before: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def commands(self) -> list[list[str]]:
        """What to tell pip to install, one call after another."""
        return [*([list(self.before)] if self.before else []), [*self.flags, self.package, *self.beside]]


def peers() -> dict[str, Peer]:
    """Every peer by name."""
    found = (
        Peer("sb3", "stable-baselines3==2.9.0"),
        Peer("tianshou", "tianshou==2.0.1"),
        Peer("torchrl", "torchrl==0.14.1"),
        Peer("envpool", "envpool==1.2.5"),
        Peer("gymnax", "gymnax==1.0.1", before=("six",)),  # which it imports and does not ask for
        # A wheel with its emulation, vectorisation and trainer; to build pufferlib itself downloads more than packages.
        Peer("pufferlib", "pufferlib-core==3.0.19"),
        Peer("sbx", "sbx-rl==0.28.0"),
        Peer("rlox", "rlox==1.2.0"),
    )
    return {peer.name: peer for peer in found}


def jax_peers() -> dict[str, Peer]:
    """JAX, and every library of environments that is used with it, each to be installed beside our envfleet."""
    jax = "jax==0.10.2"
    found = (
        Peer("jax", jax, beside=("flax==0.12.8",)),  # which Gymnasium's phys2d environments are written with
        Peer("gymnax", "gymnax==1.0.1", before=("six==1.17.0", jax)),  # it imports six and does not ask for it
        Peer("brax", "brax==0.14.2", before=(jax,)),
        Peer("playground", "playground==0.2.0", before=(jax,)),
        Peer("jumanji", "jumanji==1.1.2", before=(jax,)),
        Peer("envpool_xla", "envpool==1.2.5", before=(jax,)),
    )
    return {peer.name: peer for peer in found}


def interop_python(peer: Peer, progress: Progress) -> str:
    """The interpreter of an environment that has both the peer and our envfleet, as it is in the working tree."""
    return peer_python(peer, INTEROP_DIRECTORY / peer.name, progress, with_envfleet=True)


def peer_python(peer: Peer, directory: Path, progress: Progress, *, with_envfleet: bool = False) -> str:
    """The interpreter of the peer's environment in `directory`, which is made first if there is none.

    A failure is written down beside the directory and not tried again until that file is removed.
    """
    python = directory / "bin" / "python"
    if _has(directory, peer):
        return str(python)
    note = directory.with_name(f"{directory.name}.failed")
    if note.exists() and (earlier := json.loads(note.read_text()))["commands"] == peer.commands:
        progress(f"{peer.package} could not be installed earlier; remove {note} to try again")
        raise InstallationError(earlier["error"])
    progress(f"installing {peer.package} into {directory}")
    try:
        _install(directory, peer, with_envfleet)
    except InstallationError as error:
        note.write_text(json.dumps({"commands": peer.commands, "error": str(error)}, indent=2) + "\n")
        raise
    return str(python)


def telling_line(text: str) -> str:
    """The last line that speaks of an error, else the last one; never a long one, nor one with this machine's paths."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    telling = [line for line in lines if re.search(r"error", line, re.IGNORECASE) and not line.startswith("note:")]
    named = [line for line in telling if re.match(r"[\w.]+(Error|Exception)\b", line)]
    line = re.sub(r"\w+://\S+", "a URL", (named or telling or lines)[-1])
    return re.sub(r"(/[\w.+-]+){2,}/", ".../", line)[:LONGEST_REASON]


def make_venv(directory: Path, *, with_envfleet: bool = False) -> Path:
    """An environment on top of ours; returns its interpreter.

    It sees our packages behind its own: the environments are the ones we step, torch is not installed once more, and
    what a peer needs in another version it gets for itself. By plain paths, so that what our environment's own files of
    paths would start, such as our envfleet, stays out unless it is asked for.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(directory)], check=True)
    (site_packages,) = directory.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    lines = [*ours, *_lines_that_start_envfleet(ours)] if with_envfleet else ours
    (site_packages / "our_packages.pth").write_text("\n".join(lines) + "\n")
    return directory / "bin" / "python"


def _lines_that_start_envfleet(site_packages: list[str]) -> list[str]:
    """What the file of paths of an editable installation says; no line for one that lies among the packages."""
    files = [file for path in site_packages for file in Path(path).glob("*envfleet*.pth")]
    return [line for file in files for line in file.read_text().splitlines() if line.strip()]


def _install(directory: Path, peer: Peer, with_envfleet: bool) -> None:
    python = make_venv(directory, with_envfleet=with_envfleet)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    for packages in peer.commands:
        # Constrained: anything that asks for torch would otherwise take the newest, with its CUDA libraries.
        command = [*pip, *packages, "-c", str(CONSTRAINTS)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            raise InstallationError(f"installing {' '.join(packages)} took more than {MOST_SECONDS:.0f} s") from None
        if done.returncode:
            raise InstallationError(f"pip install {' '.join(packages)}: {telling_line(done.stderr)}")
    (directory / INSTALLED).write_text(json.dumps(peer.commands) + "\n")


def _has(directory: Path, peer: Peer) -> bool:
    """Whether exactly this was installed there to the end, or the version is there in a directory that is not ours."""
    done, python = directory / INSTALLED, directory / "bin" / "python"
    if done.exists() or not python.exists():
        return done.exists() and json.loads(done.read_text()) == peer.commands
    name, _, wanted = peer.package.partition("==")
    question = f"from importlib.metadata import version; print(version({name!r}))"
    answer = subprocess.run([str(python), "-c", question], capture_output=True, text=True, check=False)
    return answer.stdout.strip() == wanted
