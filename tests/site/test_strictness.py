"""What ends a build, on small sites with the rules and the hooks' parts of the large one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.only_with("ENVFLEET_SITE")

ROOT = Path(__file__).parents[2]
HOOK = """
import sys
sys.path.insert(0, {folder!r})
import repository
from pathlib import Path
repository.ROOT = Path({root!r})

def on_files(files, config):
    repository.add_linked_files(files, config)
    return files

def on_page_markdown(markdown, page, config, files):
    return repository.rewritten(repository.with_films(markdown), page.file.src_uri)
"""


def rules() -> str:
    """The rules of mkdocs.yml, word for word."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return "validation:" + text.partition("\nvalidation:")[2].partition("\n\n")[0]


def build(folder: Path, **pages: str) -> subprocess.CompletedProcess[str]:
    """Builds a site of these pages, of which `index` is in the navigation, beside a folder with an example."""
    (folder / "docs").mkdir()
    (folder / "examples").mkdir()
    (folder / "examples" / "short.py").write_text("print('as it is')\n")
    (folder / "examples" / "README.md").write_text("# Examples\n\n[short](short.py), [back](../docs/index.md)\n")
    (folder / "examples" / "film.mp4").write_bytes(b"film")
    for name, text in pages.items():
        (folder / "docs" / f"{name}.md").write_text(text)
    (folder / "hook.py").write_text(HOOK.format(folder=str(ROOT / "website"), root=str(folder)))
    nav = "nav: [index.md, repo/examples/README.md]"
    text = f"site_name: small\nstrict: true\nhooks: [hook.py]\nuse_directory_urls: false\n{nav}\n{rules()}\n"
    (folder / "mkdocs.yml").write_text(text)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_links_out_of_docs_lead_to_pages_of_the_files(tmp_path: Path) -> None:
    index = "# Top\n\n[code](../examples/short.py) [all](../examples/README.md#examples) `[no](../link.py)`\n\n"
    index += "[![a film](../examples/film.mp4)](../examples/film.mp4)\n"
    done = build(tmp_path, index=index)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "index.html").read_text()
    assert 'href="repo/examples/short.py.html"' in page
    assert 'href="repo/examples/index.html#examples"' in page
    assert "[no](../link.py)" in page
    assert 'src="repo/examples/film.mp4"' in page
    assert "as it is" in (tmp_path / "site" / "repo" / "examples" / "short.py.html").read_text()
    assert 'href="../../index.html"' in (tmp_path / "site" / "repo" / "examples" / "index.html").read_text()
    assert (tmp_path / "site" / "repo" / "examples" / "film.mp4").read_bytes() == b"film"


@pytest.mark.parametrize(
    ("pages", "said"),
    [
        ({"index": "# Top\n\n[gone](gone.md)\n"}, "gone.md"),
        ({"index": "# Top\n\n[gone](#nowhere)\n"}, "no such anchor"),
        ({"index": "# Top\n\n[gone](/there.md)\n"}, "absolute link"),
        ({"index": "# Top\n", "hidden": "# Not in the navigation\n"}, "hidden.md"),
        ({"index": "# Top\n\n[gone](../examples/gone.py)\n"}, "examples/gone.py, which is not in the repository"),
    ],
    ids=["page", "anchor", "absolute", "navigation", "file"],
)
def test_what_leads_nowhere_ends_the_build(pages: dict[str, str], said: str, tmp_path: Path) -> None:
    done = build(tmp_path, **pages)
    assert done.returncode != 0
    assert said in done.stderr + done.stdout
