"""A CPython for 64-bit ARM: Debian's packages, unpacked into a folder. Needs neither root nor an ARM machine."""

from __future__ import annotations

from pathlib import Path

from building import run, the_only

PACKAGES = ("python3-minimal", "libpython3-stdlib", "libpython3-dev", "libstdc++6")  # the last for NumPy


def unpacked(folder: Path) -> Path:
    """The root of a file system with Debian's Python for ARM, headers included, of the release this machine has."""
    root = folder / "root"
    if not (root / "usr" / "bin" / "python3").exists():
        settings = {"APT_CONFIG": str(_settings(folder))}
        run(["apt-get", "update", "-qq"], settings)
        run(["apt-get", "install", "-qq", "--yes", "--download-only", "--no-install-recommends", *PACKAGES], settings)
        for package in sorted((folder / "apt" / "cache" / "archives").glob("*.deb")):
            run(["dpkg", "-x", package, root])
    return root


def version_of(root: Path) -> tuple[int, int]:
    """Two numbers, from the name of the folder that has the headers."""
    major, minor = the_only(root / "usr" / "include", "python3.*").name.removeprefix("python").split(".")
    return int(major), int(minor)


def _settings(folder: Path) -> Path:
    """What tells apt to keep to the folder and to know no other architecture, nor what is installed here."""
    apt = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    settings = apt / "apt.conf"
    settings.write_text(
        'APT::Architecture "arm64";\nAPT::Architectures { "arm64"; };\nAPT::Sandbox::User "";\n'
        f'Dir::State "{apt}";\nDir::State::status "{apt / "status"}";\nDir::Cache "{apt / "cache"}";\n'
    )
    return settings
