"""The site as `make docs` has built it: nothing from elsewhere, nothing missing, and questions find their answers."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from questions import QUESTIONS

pytestmark = pytest.mark.only_with("ENVFLEET_SITE")

ROOT = Path(__file__).parents[2]
SITE = Path(os.environ.get("ENVFLEET_SITE", ROOT / "build" / "site"))
LOADING = {"script": "src", "link": "href", "img": "src", "video": "src", "source": "src", "iframe": "src"}
"""Elements that load something, and the attribute that says what."""


class Page(HTMLParser):
    """What a page loads, where it leads, and the places in it that can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag in LOADING and LOADING[tag] in found and found.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(found[LOADING[tag]])
        if "poster" in found:
            self.loaded.append(found["poster"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])


@cache
def pages() -> dict[Path, Page]:
    """All but what a server shows for an address that it does not know."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in SITE.rglob("*.html") if path != SITE / "404.html"}


def is_elsewhere(address: str) -> bool:
    return re.match(r"(?:[a-z][a-z0-9+.-]*:)?//", address) is not None


def test_pages_load_nothing_from_elsewhere() -> None:
    assert len(pages()) > 100
    foreign = {(path.name, what) for path, page in pages().items() for what in page.loaded if is_elsewhere(what)}
    assert foreign == set()
    for sheet in SITE.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import\s*)[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")) == [], sheet


def test_everything_that_pages_load_and_link_to_is_there() -> None:
    missing = []
    for path, page in pages().items():
        for address in (*page.loaded, *page.links):
            if is_elsewhere(address) or address.startswith(("data:", "mailto:", "javascript:")):
                continue
            place, anchor = urldefrag(unquote(address))
            target = (path.parent / place).resolve() if place else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                missing.append(f"{path.relative_to(SITE)}: {address}")
            elif anchor and target in pages() and anchor not in pages()[target].anchors | {"__top"}:
                missing.append(f"{path.relative_to(SITE)}: {address} (no such place)")
    assert missing == []


@cache
def found_by_search(*queries: str) -> list[list[list[str]]]:
    """For each query, the pages found, best first, each as the places in it."""
    command = ["node", str(Path(__file__).with_name("search.js")), str(SITE), *queries]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    found: list[list[list[str]]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.typed)
def test_one_search_finds_the_answer(question: object) -> None:
    """Among the first five, which are seen without scrolling."""
    results = found_by_search(*(question.typed for question in QUESTIONS))[QUESTIONS.index(question)]  # type: ignore[arg-type]
    first = [urldefrag(group[0]).url for group in results[:5]]
    assert question.page in first, first  # type: ignore[attr-defined]


def test_a_search_for_nonsense_finds_nothing() -> None:
    assert found_by_search("xylophoneqq") == [[]]


def test_the_questions_are_ten_or_more_and_about_different_pages() -> None:
    assert len(QUESTIONS) >= 10
    assert len({question.page for question in QUESTIONS}) >= 10


def test_every_page_of_the_docs_is_in_the_site() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        built = SITE / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (built if page.stem != "README" else built.with_name("index.html")).is_file(), page


@pytest.mark.parametrize("package", ["envfleet", "envfleet.train", "envfleet.wrappers", "envfleet.adapters"])
def test_every_public_name_has_a_place_in_the_reference(package: str) -> None:
    page = pages()[SITE / "reference" / f"{package}.html"]
    for name in importlib.import_module(package).__all__:
        assert {f"{package}.{name}", name.lower(), name} & page.anchors, name


def test_the_gallery_shows_every_agent_with_film_curve_and_command() -> None:
    text = (SITE / "gallery.html").read_text(encoding="utf-8")
    folders = [path.parent for path in (ROOT / "benchmarks" / "learning" / "agents").glob("*/agent.json")]
    assert len(folders) >= 2
    for folder in folders:
        assert f"agents/{folder.name}/film.mp4" in text
        assert f"agents/{folder.name}/curve.png" in text
        facts = json.loads((folder / "agent.json").read_text(encoding="utf-8"))
        assert facts["command"] in re.sub(r"<[^>]+>", "", text)


def test_tutorials_show_the_figures_of_their_notebooks() -> None:
    for notebook in (ROOT / "docs" / "tutorials").glob("*.ipynb"):
        text = (SITE / "tutorials" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        pictures = sum("image/png" in output.get("data", {}) for output in outputs)
        films = sum("<video" in "".join(output.get("data", {}).get("text/html", "")) for output in outputs)
        assert len(re.findall(rf'src="{notebook.stem}-\d+\.png"', text)) == pictures
        assert text.count("<video") == films
        assert pictures + films > 0
