"""The script that downloads Box2D's sources for the build: what it does where they cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "cmake" / "fetch_box2d.py"

pytestmark = pytest.mark.skipif(
    subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode != 0,
    reason="needs pip",
)


def fetch(target: Path, links: Path, kept: bytes | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a copy of the script with nothing to download from but a folder, and perhaps an archive that was kept."""
    sources = target.parent.parent / "sources"
    script = sources / "cmake" / SCRIPT.name
    script.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, script)
    if kept is not None:
        (sources / "third_party").mkdir()
        (sources / "third_party" / "box2d-py-2.3.8.tar.gz").write_bytes(kept)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(links)}
    return subprocess.run(
        [sys.executable, script, target], env=env, capture_output=True, text=True, timeout=100, check=False
    )


def test_without_an_index_it_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    links, build = tmp_path / "links", tmp_path / "build"
    links.mkdir()
    done = fetch(build / "box2d", links)
    assert done.returncode == 1
    assert "pip could not download box2d-py==2.3.8." in done.stderr
    assert list(build.iterdir()) == []


def test_another_archive_of_that_name_is_refused_and_its_code_never_runs(tmp_path: Path) -> None:
    links, build, ran = tmp_path / "links", tmp_path / "build", tmp_path / "ran"
    folder = links / "box2d-py-2.3.8"
    folder.mkdir(parents=True)
    (folder / "setup.py").write_text(f"open({str(ran)!r}, 'w')")
    with tarfile.open(links / "box2d-py-2.3.8.tar.gz", "w:gz") as archive:
        archive.add(folder, folder.name)
    done = fetch(build / "box2d", links)
    assert done.returncode == 1
    assert "HASH" in done.stderr.upper()
    assert not ran.exists()
    assert list(build.iterdir()) == []


def test_what_is_there_is_not_downloaded_again(tmp_path: Path) -> None:
    target = tmp_path / "build" / "box2d"
    target.mkdir(parents=True)
    assert fetch(target, tmp_path).returncode == 0


def test_an_archive_that_was_kept_is_refused_where_it_is_another(tmp_path: Path) -> None:
    build = tmp_path / "build"
    done = fetch(build / "box2d", tmp_path, kept=b"something else")
    assert done.returncode == 1
    assert "expected bdacfbbc56079bb317548efe49d3d5a86646885cc27f4a2ee97e4b2960921ab7" in done.stderr
    assert list(build.iterdir()) == []
