"""Unpacks the source distribution that holds Box2D's C++ sources, downloaded if it is not here. Runs none of its code.

python fetch_box2d.py TARGET     leaves the sources in the folder TARGET
python fetch_box2d.py --archive  leaves the archive itself in third_party, where envfleet's source distribution takes it
                                 along; from then on nothing is downloaded

pip does the download, so that its configured index, proxy and certificates apply, and checks the hash. It insists on
asking a source distribution for its name and version, for which this one's setup script would run; a stand-in for
setuptools answers instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

NAME, VERSION = "box2d-py", "2.3.8"
SHA256 = "bdacfbbc56079bb317548efe49d3d5a86646885cc27f4a2ee97e4b2960921ab7"
KEPT = Path(__file__).parents[1] / "third_party" / f"{NAME}-{VERSION}.tar.gz"

BACKEND = f'''
from pathlib import Path


class Backend:
    def get_requires_for_build_wheel(self, config_settings=None):
        return []

    def prepare_metadata_for_build_wheel(self, metadata_directory, config_settings=None):
        folder = Path(metadata_directory, "{NAME.replace("-", "_")}-{VERSION}.dist-info")
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: {NAME}\\nVersion: {VERSION}\\n")
        return folder.name


__legacy__ = Backend()
'''


def main(target: Path) -> None:
    """Leaves the sources in the target folder, which appears only once they are complete."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        unpack(kept() or download(folder), folder / "sources")
        (folder / "sources" / f"{NAME}-{VERSION}").rename(target)


def keep() -> None:
    """Leaves the archive in third_party."""
    if kept() is None:
        KEPT.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as name:
            shutil.move(download(Path(name)), KEPT)


def kept() -> Path | None:
    """The archive in third_party, if there is one; its hash is checked as pip would."""
    if not KEPT.exists():
        return None
    found = hashlib.sha256(KEPT.read_bytes()).hexdigest()
    if found != SHA256:
        raise ValueError(f"{KEPT} has the SHA-256 hash {found}, expected {SHA256}: remove it to have it downloaded.")
    return KEPT


def download(folder: Path) -> Path:
    """The archive, its hash checked."""
    stand_in = folder / "stand_in" / "setuptools"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").touch()
    (stand_in / "build_meta.py").write_text(BACKEND)
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{NAME}=={VERSION} --hash=sha256:{SHA256}\n")
    options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--no-cache-dir"]
    patience = ["--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
    where = ["--require-hashes", "--requirement", str(requirements), "--dest", str(folder)]
    search = os.pathsep.join(filter(None, (str(stand_in.parent), os.environ.get("PYTHONPATH"))))
    subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, *patience, *where],
        env={**os.environ, "PYTHONPATH": search, "PIP_USE_PEP517": "1"},  # older pips prefer the setup script
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )
    return folder / f"{NAME}-{VERSION}.tar.gz"


def unpack(archive: Path, folder: Path) -> None:
    """Nothing but plain files inside the folder: what the hash vouches for is checked all the same."""
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            path = (folder / member.name).resolve()
            if not path.is_relative_to(folder.resolve()) or not (member.isfile() or member.isdir()):
                raise ValueError(f"{archive.name} holds {member.name!r}, which is no plain file.")
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


if __name__ == "__main__":
    try:
        if sys.argv[1] == "--archive":
            keep()
        else:
            main(Path(sys.argv[1]))
    except subprocess.SubprocessError:
        sys.exit(f"pip could not download {NAME}=={VERSION}.")
    except (OSError, ValueError, tarfile.TarError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
